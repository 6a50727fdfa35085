// SPDX-License-Identifier: Apache-2.0
/* Memory, copies and fills, as the runtime has them. */
#include "memory.h"
#include "streams.h"
#include <cstring>
#include <memory>

using namespace emulator;

/* ---- allocation ---- */

static size_t bytes_of_device(void) { return (size_t)setting("bytes=", 4ll << 30); }

static cudaError_t allocate(void **ret, memory_kind kind, size_t bytes, const void *caller) {
  if (stream_is_captured()) return cudaErrorStreamCaptureUnsupported;
  if (kind != MEMORY_PINNED && memory_used() + bytes > bytes_of_device())
    return cudaErrorMemoryAllocation;
  *ret = memory_new(kind, bytes, caller);
  return *ret ? cudaSuccess : cudaErrorMemoryAllocation;
}
#define CALLER __builtin_return_address(0)

cudaError_t cudaMalloc(void **ret, size_t bytes) {
  return allocate(ret, MEMORY_DEVICE, bytes, CALLER);
}
cudaError_t cudaMallocManaged(void **ret, size_t bytes, unsigned) {
  return allocate(ret, MEMORY_MANAGED, bytes, CALLER);
}
cudaError_t cudaHostAlloc(void **ret, size_t bytes, unsigned) {
  return allocate(ret, MEMORY_PINNED, bytes, CALLER);
}
cudaError_t cudaMallocHost(void **ret, size_t bytes) {
  return allocate(ret, MEMORY_PINNED, bytes, CALLER);
}

/* It waits for the device. */
cudaError_t cudaFree(void *memory) {
  if (!memory) return cudaSuccess;
  if (stream_is_captured()) return cudaErrorStreamCaptureUnsupported;
  queue_wait(nullptr);
  memory_kind kind = memory_kind_of(memory);
  if (kind != MEMORY_DEVICE && kind != MEMORY_MANAGED) return cudaErrorInvalidValue;
  return memory_free(memory) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaFreeHost(void *memory) {
  const block *b = memory_find(memory);
  if (!memory) return cudaSuccess;
  if (!b || b->kind != MEMORY_PINNED) return cudaErrorInvalidValue;
  if (queue_user(b->data, b->bytes)) memory_report("frees memory of a pending copy", b, memory);
  return memory_free(memory) ? cudaSuccess : cudaErrorInvalidValue;
}

/* It can be used by what comes later on the stream. */
cudaError_t cudaMallocAsync(void **ret, size_t bytes, cudaStream_t) {
  return allocate(ret, MEMORY_DEVICE, bytes, CALLER);
}
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) {
  if (!memory) return cudaSuccess;
  return stream_do(stream, "cudaFreeAsync", [=]() { memory_free(memory); });
}

cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_all) {
  *ret_all = bytes_of_device();
  return *ret_free = *ret_all - memory_used(), cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *ret, const void *address) {
  static const cudaMemoryType types[] = {
      cudaMemoryTypeUnregistered, cudaMemoryTypeDevice, cudaMemoryTypeManaged, cudaMemoryTypeHost};
  memory_kind kind = memory_kind_of(address);
  void *at = (void *)address;
  *ret = {types[kind], 0, kind == MEMORY_PAGEABLE ? nullptr : at, at};
  if (kind == MEMORY_DEVICE) ret->hostPointer = nullptr;
  return cudaSuccess;
}

/* ---- copies ---- */

/* Rows of `width` bytes. */
struct rows_copy {
  char *to;
  const char *from;
  size_t to_pitch, from_pitch, width, height;
};

static void run_copy(const rows_copy &c) {
  for (size_t i = 0; i < c.height; i++)
    memmove(c.to + i * c.to_pitch, c.from + i * c.from_pitch, c.width);
}

static bool is_host(memory_kind kind) { return kind == MEMORY_PAGEABLE || kind == MEMORY_PINNED; }

/* A direction that is said must be the one of the addresses; managed memory is on either side. */
static bool has_direction(cudaMemcpyKind said, memory_kind to, memory_kind from) {
  bool to_host = said == cudaMemcpyHostToHost || said == cudaMemcpyDeviceToHost;
  bool from_host = said == cudaMemcpyHostToHost || said == cudaMemcpyHostToDevice;
  return said == cudaMemcpyDefault || ((to == MEMORY_MANAGED || is_host(to) == to_host) &&
                                       (from == MEMORY_MANAGED || is_host(from) == from_host));
}

/* Pageable memory is read before the call returns, through a buffer of the driver's. Copies to it,
 * and those from host to host, are done when the call returns. */
static cudaError_t copy(const rows_copy &c, cudaMemcpyKind kind, cudaStream_t stream, bool waits) {
  memory_kind to = memory_kind_of(c.to), from = memory_kind_of(c.from);
  if (!has_direction(kind, to, from)) return cudaErrorInvalidValue;
  if (!c.width || !c.height) return emulated_count();
  const char *what = "cudaMemcpy";
  cudaError_t error;
  if (stream_at(stream)->captured) return stream_do(stream, what, [=]() { run_copy(c); });
  if (from == MEMORY_PAGEABLE && !is_host(to)) {
    auto staged = std::make_shared<std::vector<char>>(c.width * c.height);
    run_copy({staged->data(), c.from, c.width, c.from_pitch, c.width, c.height});
    error = stream_do(stream, what, [=]() {
      run_copy({c.to, staged->data(), c.to_pitch, c.width, c.width, c.height});
    });
  } else {
    const rows_copy &h = c;
    bool reads = from == MEMORY_PINNED;
    const char *host = reads ? h.from : to == MEMORY_PINNED ? h.to : nullptr;
    size_t pitch = reads ? h.from_pitch : h.to_pitch;
    error = stream_do(
        stream, what, [=]() { run_copy(c); }, host, pitch * (c.height - 1) + c.width);
    waits |= to == MEMORY_PAGEABLE || (is_host(to) && is_host(from));
  }
  if (!error && waits) queue_wait(stream_at(stream)->last);
  return error ? error : emulated_count();
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  return copy({(char *)to, (const char *)from, 0, 0, bytes, 1}, kind, nullptr, true);
}
cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy({(char *)to, (const char *)from, 0, 0, bytes, 1}, kind, stream, false);
}
cudaError_t cudaMemcpy2DAsync(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
    cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  return copy(
      {(char *)to, (const char *)from, to_pitch, from_pitch, width, height}, kind, stream, false);
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream) {
  cudaError_t error = stream_do(stream, "cudaMemset", [=]() { memset(to, byte, bytes); });
  return error ? error : emulated_count();
}
cudaError_t cudaMemset(void *to, int byte, size_t bytes) {
  return cudaMemsetAsync(to, byte, bytes, nullptr);
}
