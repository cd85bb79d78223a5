# The process group and the rules, as part of neuron_emu._C.
list(APPEND bridge_sources
  bindings/distributed_bindings.cpp
  distributed/admission.cpp
  distributed/collective_call.cpp
  distributed/collectives.cpp
  distributed/ddp_options.cpp
  distributed/dtype_map.cpp
  distributed/failure_watch.cpp
  distributed/flight_dump.cpp
  distributed/flight_record.cpp
  distributed/flight_recorder.cpp
  distributed/join.cpp
  distributed/live_groups.cpp
  distributed/member_record.cpp
  distributed/messages_in_flight.cpp
  distributed/node_identity.cpp
  distributed/outcome_watcher.cpp
  distributed/path.cpp
  distributed/point_to_point.cpp
  distributed/process_group_neuron.cpp
  distributed/python_stack.cpp
  distributed/reduction.cpp
  distributed/staging.cpp
  distributed/store_bootstrap.cpp
  distributed/tensor_checks.cpp
  distributed/work_neuron.cpp
  rules/rules.cpp)
