"""Calls that wait for room in a stream let other Python threads run meanwhile: one of them may be what the stream waits
for.
"""

from __future__ import annotations

from scripts import run_script

# The other thread gets Python's lock only when it is let go of, since nothing is switched by time: that it has opened
# the gate when the call is back proves that the call let go of the lock, and that it waited.
_A_FULL_STREAM = """
import faulthandler
faulthandler.dump_traceback_later(100, exit=True)
_C.set_inline(False)
ROOM = 4
stream, side = torch.neuron.current_stream(), torch.neuron.Stream()
tensor = torch.zeros(4, device="neuron")
index = torch.tensor([0, 1], device="neuron")
storage = torch.zeros(4, device="neuron").untyped_storage()
event, timed, of_side, at_end = torch.Event("neuron"), torch.Event("neuron", enable_timing=True), torch.Event(
    "neuron"), torch.Event("neuron")
host = torch.zeros(4).pin_memory()
calls = {
    "wait": lambda: of_side.wait(stream),
    "wait_event": lambda: stream.wait_event(of_side),
    "wait_stream": lambda: stream.wait_stream(side),
    "record with time": lambda: timed.record(stream),
    "synchronize an event": lambda: at_end.synchronize(),
    "synchronize a stream": lambda: stream.synchronize(),
    "synchronize": lambda: torch.accelerator.synchronize(),
    "resize": lambda: storage.resize_(4096),
    "set a number": lambda: tensor.__setitem__(0, 1.0),
    "set by index": lambda: tensor.__setitem__(index, 1.0),
    "copy": lambda: tensor.copy_(host, non_blocking=True),
    "random": lambda: tensor.uniform_(),
    "an operator": lambda: tensor.add_(1),
    "a number": lambda: tensor[0].item(),
}
for name, call in calls.items():
    call()
torch.neuron.synchronize()

for name, call in calls.items():
    print(name, file=sys.stderr, flush=True)
    started, about_to_call, opened = threading.Event(), threading.Event(), threading.Event()
    gate, gate_of_side = _C.hold_stream(stream.stream_id, 0), _C.hold_stream(side.stream_id, 0)
    of_side.record(side)

    def open_gates():
        started.set()
        about_to_call.wait()
        gate.open()
        gate_of_side.open()
        opened.set()

    opener = threading.Thread(target=open_gates)
    opener.start()
    started.wait()
    sys.setswitchinterval(1000)
    for _ in range(ROOM - 1):
        tensor.add_(1)
    at_end.record(stream)
    about_to_call.set()
    early = opened.is_set()
    call()
    waited = opened.is_set()
    sys.setswitchinterval(0.005)
    opener.join()
    torch.neuron.synchronize()
    assert not early, name
    assert waited, name
print("all let go")
"""


def test_who_waits_for_room_lets_other_threads_run() -> None:
    out = run_script(_A_FULL_STREAM, {"NEURON_EMU_MAX_COMMANDS_AHEAD": "4"})
    assert out == "all let go\n"
