# neuron_emu/_build_info.py: what the extension was built with, readable without loading it.
configure_file("${CMAKE_CURRENT_LIST_DIR}/build_info.py.in" "${PROJECT_BINARY_DIR}/_build_info.py" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/_build_info.py" DESTINATION neuron_emu)
