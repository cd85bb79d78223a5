// Precompiled: the torch headers that most of the bridge includes. They cost 20 s to parse.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>
