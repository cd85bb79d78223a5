#include "bridge/runtime/storage.h"

#include <algorithm>
#include <cstring>

#include "bridge/runtime/alias.h"
#include "bridge/runtime/allocator.h"
#include "bridge/runtime/devices.h"
#include "bridge/runtime/python_unlocked.h"
#include "bridge/runtime/streams.h"

namespace neuron::bridge {

void resize_storage(c10::StorageImpl& storage, std::size_t nbytes) {
  const PythonUnlocked unlocked;
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  Stream& stream = current_stream(storage.device().index());
  c10::DataPtr fresh = allocate_on(stream, nbytes);
  const std::size_t kept = std::min(nbytes, storage.nbytes());
  if (kept > 0 && storage.data() != nullptr) {
    void* to = fresh.get();
    const void* from = storage.data();
    auto copy = [to, from, kept](Stream&) {
      std::memcpy(to, from, kept);
      return Status::ok();
    };
    auto command = std::make_unique<FunctionCommand<decltype(copy)>>(CommandKind::kCopy, RunMode::kMayInline,
                                                                     "resize_storage", copy);
    command->set_traffic_bytes(2 * kept);
    record_use(block_of(storage.data_ptr()), stream, submit(stream, std::move(command)));
  }
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(nbytes);
}

void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides) {
  // Strides may leave gaps: the memory first.
  out.resize_({static_cast<std::int64_t>(extent_bytes(sizes, strides, out.itemsize()) / out.itemsize())});
  out.as_strided_(sizes, strides);
}

}  // namespace neuron::bridge
