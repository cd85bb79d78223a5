# NEURON_SANITIZE=address,undefined or thread: for the engine's tests (presets asan-ubsan, tsan).
set(NEURON_SANITIZE "" CACHE STRING "Sanitizers for the engine: '', 'address,undefined' or 'thread'")
if(NEURON_SANITIZE)
  if(NEURON_BUILD_BRIDGE)
    message(FATAL_ERROR "NEURON_SANITIZE needs NEURON_BUILD_BRIDGE=OFF: torch itself is not instrumented")
  endif()
  add_compile_options(-fsanitize=${NEURON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${NEURON_SANITIZE})
endif()
