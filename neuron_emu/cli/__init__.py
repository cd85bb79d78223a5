"""The command `neuron-emu`: one module for each subcommand."""
