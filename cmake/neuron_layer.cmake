# neuron_layer(name SOURCES … HEADERS … LAYERS … [LIBRARIES …] [TESTS … [TEST_LAYERS …]])
#
# Declares one layer of the engine as the static library neuron_<name>. It may include only the layers that it names;
# tools/check_layers.py reads the same lists. HEADERS form a file set whose every header is compiled alone by the target
# all_verify_interface_header_sets (not in the default build). LIBRARIES are the system's. TESTS become one GoogleTest
# program, neuron_<name>_test, which may also see TEST_LAYERS.
#
# Release builds use -O2; a source of kernels asks for more: set_source_files_properties(… COMPILE_OPTIONS -O3).
include_guard()
include(GoogleTest)

function(neuron_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "SOURCES;HEADERS;LAYERS;LIBRARIES;TESTS;TEST_LAYERS")
  if(layer_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "neuron_layer(${name}): unknown arguments ${layer_UNPARSED_ARGUMENTS}")
  endif()
  set(target neuron_${name})
  find_package(Threads REQUIRED)
  list(TRANSFORM layer_LAYERS PREPEND neuron_)
  list(TRANSFORM layer_TEST_LAYERS PREPEND neuron_)

  add_library(${target} STATIC ${layer_SOURCES})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${layer_HEADERS})
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  target_link_libraries(${target} PUBLIC ${layer_LAYERS} ${layer_LIBRARIES} Threads::Threads)
  neuron_compile_options(${target})
  if(NEURON_BUILD_TESTS AND layer_TESTS)
    neuron_test(${target}_test SOURCES ${layer_TESTS} LIBRARIES ${target} ${layer_TEST_LAYERS})
  endif()
endfunction()

# neuron_program(target SOURCES … LAYERS …): a program of the engine, for the wheel. The same rules as for a layer.
function(neuron_program target)
  cmake_parse_arguments(PARSE_ARGV 1 program "" "" "SOURCES;LAYERS")
  list(TRANSFORM program_LAYERS PREPEND neuron_)
  add_executable(${target} ${program_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${program_LAYERS})
  neuron_compile_options(${target})
endfunction()

# neuron_test(target SOURCES … LIBRARIES …): one GoogleTest program. ctest runs each of its tests as a process.
function(neuron_test target)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "" "SOURCES;LIBRARIES")
  find_package(GTest REQUIRED)
  add_executable(${target} ${test_SOURCES})
  target_link_libraries(${target} PRIVATE ${test_LIBRARIES} GTest::gtest_main)
  neuron_compile_options(${target})
  gtest_discover_tests(${target} PROPERTIES TIMEOUT 120 DISCOVERY_TIMEOUT 60)
endfunction()

function(neuron_compile_options target)
  target_compile_options(${target} PRIVATE ${NEURON_WARNING_OPTIONS} $<$<CONFIG:Release>:-O2>)
endfunction()
