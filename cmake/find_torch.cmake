# Finds the torch that is installed for Python3_EXECUTABLE: an imported target `torch_installed` and TORCH_VERSION.
#
# Not find_package(Torch): on a CUDA build of torch it demands a CUDA toolkit, which nothing here needs.
execute_process(
  COMMAND "${Python3_EXECUTABLE}" -c
          "import importlib.util, pathlib; s = importlib.util.find_spec('torch'); print(pathlib.Path(s.origin).parent if s else '')"
  OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(torch_root STREQUAL "")
  message(FATAL_ERROR "torch is not installed for ${Python3_EXECUTABLE}; install the version pinned in pyproject.toml first")
endif()
file(STRINGS "${torch_root}/version.py" torch_version_line REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TORCH_VERSION "${torch_version_line}")

add_library(torch_installed INTERFACE)
target_include_directories(torch_installed SYSTEM INTERFACE
  "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
target_compile_definitions(torch_installed INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
foreach(name c10 torch_cpu torch torch_python)
  find_library(torch_${name}_library ${name} PATHS "${torch_root}/lib" NO_DEFAULT_PATH REQUIRED)
  target_link_libraries(torch_installed INTERFACE "${torch_${name}_library}")
endforeach()
