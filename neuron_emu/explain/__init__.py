"""What the flight recorders of a job's ranks say together: who diverged first, and who waits for whom.

Reads dumps in PyTorch's flight-recorder format (ours, or those of ProcessGroupNCCL); needs neither torch nor the
extension. In reading order: `calls` (a call, as one rank recorded it), `dumps` (files to dumps), `collectives` and
`messages` (what does not fit), `report` (plain words).
"""

from __future__ import annotations
