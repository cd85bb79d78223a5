# NEURON_SANITIZE=address,undefined or thread: for the engine's tests (presets asan-ubsan, tsan), and thread for
# the bridge, too (preset tsan-bridge), although torch itself is not instrumented.
set(NEURON_SANITIZE "" CACHE STRING "Sanitizers: '', 'address,undefined' or 'thread'")
if(NEURON_SANITIZE)
  if(NEURON_BUILD_BRIDGE AND NOT NEURON_SANITIZE STREQUAL "thread")
    message(FATAL_ERROR "NEURON_SANITIZE=${NEURON_SANITIZE} needs NEURON_BUILD_BRIDGE=OFF")
  endif()
  add_compile_options(-fsanitize=${NEURON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${NEURON_SANITIZE})
endif()
