// SPDX-License-Identifier: Apache-2.0
#include "streams.h"
#include <algorithm>
#include <string>

namespace emulator {

static void begin_step(cudaStream_t s, const char *what, emulated_step *step, void *context) {
  stream_begin(s, what, [=]() {
    bool moved = false;
    return step(context, &moved) ? DONE : moved ? MOVED : NOTHING;
  });
}

static bool is_captured(cudaStream_t s) { return s->captured != nullptr; }

EMULATED_FIRST static std::vector<CUstream_st *> streams;

static CUstream_st *stream_new(bool is_blocking) {
  return new CUstream_st{{begin_step, is_captured}, lane_new(), is_blocking, nullptr, nullptr, {}};
}

CUstream_st *stream_at(cudaStream_t stream) {
  static CUstream_st *legacy = stream_new(false);
  return stream ? stream : legacy;
}

const std::vector<CUstream_st *> &streams_all() { return streams; }

bool stream_is_captured() {
  for (const CUstream_st *s : streams)
    if (s->captured) return true;
  return false;
}

bool is_dropped(const char *word, long long *calls) { return ++*calls == setting(word, 0); }

cudaError_t stream_begin(
    cudaStream_t stream, const char *what, work run, const void *host, size_t host_bytes,
    const op &more) {
  CUstream_st *s = stream_at(stream), *legacy = stream_at(nullptr);
  if (s->captured) {
    s->captured->nodes.push_back({what, std::move(run), s->heads});
    s->heads = {s->captured->nodes.size() - 1};
    return cudaSuccess;
  }
  std::vector<op> after = {s->last, more};
  if (s->is_blocking) after.push_back(legacy->last);
  for (CUstream_st *other : streams) {
    if (s != legacy || !other->is_blocking) continue;
    if (other->captured) return other->captured->is_invalid = true, cudaErrorStreamCaptureImplicit;
    after.push_back(other->last);
  }
  s->last = queue_add(what, s->lane, after, std::move(run), host, host_bytes);
  return cudaSuccess;
}

cudaError_t stream_do(
    cudaStream_t stream, const char *what, const std::function<void()> &run, const void *host,
    size_t host_bytes) {
  return stream_begin(
      stream, what, [=]() { return run(), DONE; }, host, host_bytes);
}

/* Kernels find the runtime here (emulator.h). */
static void begin_kernel(CUstream_st *s, const char *what, const std::function<void()> &run) {
  stream_do(s, what, run);
}
__attribute__((constructor(101))) static void install() { begins = begin_kernel; }

static progress nothing() { return DONE; }

} // namespace emulator

using namespace emulator;

void emulated_begin(
    cudaStream_t stream, const char *what, void (*work)(const void *arguments),
    const void *arguments, size_t bytes) {
  std::string copy((const char *)arguments, bytes);
  stream_do(stream, what, [=]() { work(copy.data()); });
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags) {
  streams.push_back(*ret = stream_new(!(flags & cudaStreamNonBlocking)));
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *ret) {
  return cudaStreamCreateWithFlags(ret, cudaStreamDefault);
}
/* What it was given runs when it may. */
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  if (!s) return cudaErrorInvalidResourceHandle;
  streams.erase(std::find(streams.begin(), streams.end(), s));
  return delete s, cudaSuccess;
}

static long long host_waits;

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUstream_st *s = stream_at(stream);
  if (s->captured) return s->captured->is_invalid = true, cudaErrorStreamCaptureUnsupported;
  if (is_dropped("drop_sync=", &host_waits)) return emulated_count();
  cudaError_t error = stream ? cudaSuccess : stream_begin(s, "cudaStreamSynchronize", nothing);
  if (error == cudaSuccess && s->last) queue_wait(s->last);
  return error ? error : emulated_count();
}

cudaError_t cudaDeviceSynchronize(void) {
  if (stream_is_captured()) return cudaErrorStreamCaptureUnsupported;
  if (!is_dropped("drop_sync=", &host_waits)) queue_wait(nullptr);
  return emulated_count();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  static long long asked;
  CUstream_st *s = stream_at(stream);
  long long at = setting("stall=", 0);
  if (at && ++asked >= at) return cudaErrorNotReady;
  if (s->captured) return s->captured->is_invalid = true, cudaErrorStreamCaptureUnsupported;
  queue_pass();
  cudaError_t error = emulated_count();
  return error ? error : s->last && !s->last->done ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void *context) {
  cudaError_t error =
      stream_do(s, "a host function", [=]() { queue_call_host([=]() { function(context); }); });
  return error ? error : emulated_count();
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned) {
  return *ret = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *ret) { return cudaEventCreateWithFlags(ret, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CUstream_st *s = stream_at(stream);
  cudaError_t error = s->captured ? cudaSuccess : stream_begin(s, "cudaEventRecord", nothing);
  if (error) return error;
  event->captured = s->captured;
  event->heads = s->heads;
  event->record = s->captured ? nullptr : s->last;
  return emulated_count();
}

/* A stream that waits for an event of a capture is captured from then on. */
static cudaError_t join(CUstream_st *s, const CUevent_st *event) {
  if (!event->captured) return cudaErrorStreamCaptureIsolation;
  if (!s->captured) s->captured = event->captured, s->heads = {};
  if (s->captured != event->captured) return cudaErrorStreamCaptureIsolation;
  for (size_t head : event->heads)
    if (std::find(s->heads.begin(), s->heads.end(), head) == s->heads.end())
      s->heads.push_back(head);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  static long long waits;
  CUstream_st *s = stream_at(stream);
  if (is_dropped("drop_wait=", &waits)) return emulated_count();
  cudaError_t error = cudaSuccess;
  if (s->captured || event->captured) error = join(s, event);
  else if (event->record)
    error = stream_begin(s, "cudaStreamWaitEvent", nothing, nullptr, 0, event->record);
  return error ? error : emulated_count();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured) return cudaErrorStreamCaptureUnsupported;
  if (!is_dropped("drop_sync=", &host_waits) && event->record) queue_wait(event->record);
  return emulated_count();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured) return cudaErrorStreamCaptureUnsupported;
  queue_pass();
  return event->record && !event->record->done ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t from, cudaEvent_t to) {
  if (!from->record || !to->record) return cudaErrorInvalidResourceHandle;
  if (!from->record->done || !to->record->done) return cudaErrorNotReady;
  return *ret_ms = (float)(to->record->ended_ms - from->record->ended_ms), cudaSuccess;
}
