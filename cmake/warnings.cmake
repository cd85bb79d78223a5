# Warnings are errors in our own code; torch's headers are SYSTEM.
set(NEURON_WARNING_OPTIONS -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Werror)
