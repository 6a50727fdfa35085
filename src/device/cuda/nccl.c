// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/nccl.h"
#include "device/cuda/device.h"
#include "device/cuda/numbered_events.h"
#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the library ---- */

// clang-format off
#define FUNCTIONS(X) \
  X(GetVersion) X(GetUniqueId) X(GetErrorString) X(CommInitRankConfig) X(CommSplit) \
  X(CommGetAsyncError) X(CommAbort) X(CommFinalize) X(CommDestroy) X(GroupStart) X(GroupEnd) \
  X(Send) X(Recv) X(AllReduce) X(ReduceScatter)
// clang-format on

typedef struct {
#define X(name) __typeof__(&nccl##name) name;
  FUNCTIONS(X)
#undef X
} library;

static bool load(library *ret, char *why) {
  void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!handle) return snprintf(why, TSR_CUDA_WHY_BYTES, "%s", dlerror()), false;
#define X(name)                                                                                    \
  *(void **)&ret->name = dlsym(handle, "nccl" #name);                                              \
  if (!ret->name) return snprintf(why, TSR_CUDA_WHY_BYTES, "libnccl.so.2 has no nccl" #name), false;
  FUNCTIONS(X)
#undef X
  return true;
}

bool cuda_nccl_ask(int *ret_version, char *ret_id, char *why) {
  library nccl;
  ncclUniqueId id;
  _Static_assert(sizeof id == TSR_CUDA_UNIQUE_BYTES, "an id is 128 bytes");
  *ret_version = 0;
  if (!load(&nccl, why)) return false;
  if (nccl.GetVersion(ret_version) != ncclSuccess)
    return snprintf(why, TSR_CUDA_WHY_BYTES, "its version is unknown"), false;
  if (ret_id && nccl.GetUniqueId(&id) != ncclSuccess) {
    snprintf(
        why, TSR_CUDA_WHY_BYTES,
        "it makes no id of a job\nNCCL_DEBUG=INFO prints the reason; look at the network");
    return false;
  }
  if (ret_id) memcpy(ret_id, &id, sizeof id);
  return true;
}

/* ---- communicators ---- */

enum { MARKS = 256 };

typedef struct communicator {
  struct communicator *next;
  ncclComm_t comm;
  cudaStream_t stream;
  cuda_numbered_events events;
  bool captured; /* its stream is in the capture under way */
} communicator;

struct cuda_nccl {
  library nccl;
  tsr_cuda_job job;
  ncclComm_t world;
  communicator *all;
  /* Of what was begun last, to see whether anything comes. */
  cudaEvent_t marks[MARKS];
  int64_t begun, done;
  double since; /* when something came last, or nothing was under way */
  bool capturing;
  double began,
      longest;      /* since when there is work, and the longest that it took without a graph */
  double allowance; /* of the graph under way */
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool fail(const cuda_nccl *l, const char *what, ncclResult_t result, char *why) {
  const char *text = l->nccl.GetErrorString(result);
  snprintf(
      why, TSR_CUDA_WHY_BYTES,
      "NCCL: %s: %s\nNCCL_DEBUG=WARN prints more; another process may have failed", what, text);
  return false;
}

static bool fail_late(const cuda_nccl *l, const char *what, char *why) {
  snprintf(
      why, TSR_CUDA_WHY_BYTES,
      "NCCL: %s: nothing has come for %.0f s (collectives.timeout_s)\nanother process is stopped "
      "or "
      "dead, or its link is cut",
      what, l->job.timeout_s);
  return false;
}

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); }

/* Waits on the host until a call has begun what it is for, which takes no time but when
 * communicators form. */
static bool
complete(const cuda_nccl *l, ncclComm_t comm, ncclResult_t result, const char *what, char *why) {
  double begin = now();
  while (result == ncclInProgress) {
    if (l->job.timeout_s > 0 && now() - begin > l->job.timeout_s) return fail_late(l, what, why);
    rest();
    if (l->nccl.CommGetAsyncError(comm, &result) != ncclSuccess) result = ncclSystemError;
  }
  return result == ncclSuccess || fail(l, what, result, why);
}

bool cuda_nccl_open(const tsr_cuda_job *job, cuda_nccl **ret_nccl, char *why) {
  cuda_nccl *l = calloc(1, sizeof *l);
  if (!l) return snprintf(why, TSR_CUDA_WHY_BYTES, "no memory"), false;
  l->job = *job;
  if (!load(&l->nccl, why)) return free(l), false;
  ncclUniqueId id;
  cudaError_t error;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  memcpy(&id, job->id, sizeof id);
  config.blocking = 0;
  ncclResult_t result =
      l->nccl.CommInitRankConfig(&l->world, job->processes, id, job->process, &config);
  bool ok = complete(l, l->world, result, "joining the job", why);
  for (int i = 0; ok && i < MARKS; i++)
    if ((error = cudaEventCreateWithFlags(&l->marks[i], cudaEventDisableTiming)) != cudaSuccess)
      ok = cuda_fail(why, "an event", (int)error);
  *ret_nccl = l;
  if (!ok) cuda_nccl_close(l);
  return ok;
}

int cuda_nccl_version(const cuda_nccl *l) {
  int version = 0;
  return l->nccl.GetVersion(&version) == ncclSuccess ? version : 0;
}

enum { BLOCKS_MAX = 32 }; /* that the library uses for a communicator, unless it is told */

bool cuda_nccl_form(
    cuda_nccl *l, int color, int key, int blocks, void **ret_communicator, char *why) {
  bool is_in = color >= 0;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (blocks > 0 && blocks < BLOCKS_MAX) config.maxCTAs = blocks;
  ncclComm_t comm = NULL;
  ncclResult_t result =
      l->nccl.CommSplit(l->world, is_in ? color : NCCL_SPLIT_NOCOLOR, key, &comm, &config);
  *ret_communicator = NULL;
  if (!complete(l, l->world, result, "forming a communicator", why)) return false;
  if (!is_in) return true;
  if (!complete(l, comm, ncclInProgress, "forming a communicator", why)) return false;
  communicator *g = calloc(1, sizeof *g);
  if (!g) return snprintf(why, TSR_CUDA_WHY_BYTES, "no memory"), false;
  *g = (communicator){.next = l->all, .comm = comm};
  l->all = g;
  *ret_communicator = g;
  cudaError_t error = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
  return error == cudaSuccess || cuda_fail(why, "a stream", (int)error);
}

cudaStream_t cuda_nccl_stream(const void *of) { return ((const communicator *)of)->stream; }

cudaError_t cuda_nccl_mark_stream(void *of, int number) {
  communicator *g = of;
  cudaEvent_t event;
  cudaError_t error = cuda_numbered_event(&g->events, number, &event);
  return error == cudaSuccess ? cudaEventRecord(event, g->stream) : error;
}

cudaError_t cuda_nccl_wait_for_mark(void *of, int number, cudaStream_t to) {
  cudaEvent_t event;
  cudaError_t error = cuda_numbered_event(&((communicator *)of)->events, number, &event);
  return error == cudaSuccess ? cudaStreamWaitEvent(to, event, 0) : error;
}

/* ---- what is begun on them ---- */

/* So that a later look sees how far streams are. Of more than there are marks the last one moves
 * on. */
static bool mark(cuda_nccl *l, cudaStream_t stream, char *why) {
  if (l->begun == l->done) l->since = now();
  if (l->begun - l->done < MARKS) l->begun++;
  cudaError_t error = cudaEventRecord(l->marks[(l->begun - 1) % MARKS], stream);
  return error == cudaSuccess || cuda_fail(why, "an event", (int)error);
}

static bool begun(cuda_nccl *l, communicator *g, ncclResult_t result, const char *what, char *why) {
  if (!complete(l, g->comm, result, what, why)) return false;
  if (l->capturing) return true;
  if (!l->began) l->began = now();
  return mark(l, g->stream, why);
}

bool cuda_nccl_exchange(
    cuda_nccl *l, void *of, const tsr_device_message *messages, int count, char *why) {
  communicator *g = of;
  ncclResult_t result = l->nccl.GroupStart();
  for (int i = 0; i < count && (result == ncclSuccess || result == ncclInProgress); i++) {
    const tsr_device_message *m = &messages[i];
    result =
        m->receives
            ? l->nccl.Recv(m->address, (size_t)m->bytes, ncclInt8, m->peer, g->comm, g->stream)
            : l->nccl.Send(m->address, (size_t)m->bytes, ncclInt8, m->peer, g->comm, g->stream);
  }
  ncclResult_t end = l->nccl.GroupEnd();
  bool failed = result != ncclSuccess && result != ncclInProgress;
  return begun(l, g, failed ? result : end, "messages", why);
}

static ncclDataType_t nccl_type(tsr_dtype dtype) {
  return dtype == TSR_BF16 ? ncclBfloat16 : dtype == TSR_F16 ? ncclFloat16 : ncclFloat32;
}

bool cuda_nccl_sum(
    cuda_nccl *l, void *of, tsr_dtype dtype, const void *in, void *out, int64_t count, char *why) {
  communicator *g = of;
  ncclResult_t result =
      l->nccl.AllReduce(in, out, (size_t)count, nccl_type(dtype), ncclSum, g->comm, g->stream);
  return begun(l, g, result, "a sum", why);
}

bool cuda_nccl_sum_slices(
    cuda_nccl *l, void *of, tsr_dtype dtype, const void *in, void *out, int64_t count, char *why) {
  communicator *g = of;
  ncclResult_t result =
      l->nccl.ReduceScatter(in, out, (size_t)count, nccl_type(dtype), ncclSum, g->comm, g->stream);
  return begun(l, g, result, "a sum's slices", why);
}

/* ---- capture ---- */

void cuda_nccl_begin_capture(cuda_nccl *l) { l->capturing = true; }
void cuda_nccl_end_capture(cuda_nccl *l) { l->capturing = false; }

static communicator *of_stream(const cuda_nccl *l, cudaStream_t stream) {
  communicator *g = l->all;
  while (g->stream != stream) g = g->next;
  return g;
}

bool cuda_nccl_is_captured(const cuda_nccl *l, cudaStream_t stream) {
  return of_stream(l, stream)->captured;
}

void cuda_nccl_set_captured(cuda_nccl *l, cudaStream_t stream) {
  of_stream(l, stream)->captured = true;
}

bool cuda_nccl_take_captured(cuda_nccl *l, cudaStream_t *ret_stream) {
  communicator *g = l->all;
  while (g && !g->captured) g = g->next;
  if (!g) return false;
  g->captured = false;
  *ret_stream = g->stream;
  return true;
}

bool cuda_nccl_mark_graph(cuda_nccl *l, cudaStream_t stream, char *why) {
  l->allowance = l->longest;
  return mark(l, stream, why);
}

/* ---- watching ---- */

static void abort_all(cuda_nccl *l) {
  for (communicator *g = l->all; g; g = g->next) {
    if (g->comm) l->nccl.CommAbort(g->comm);
    g->comm = NULL;
  }
  if (l->world) l->nccl.CommAbort(l->world);
  l->world = NULL;
}

static bool peers_are_well(const cuda_nccl *l, char *why) {
  for (const communicator *g = l->all; g; g = g->next) {
    ncclResult_t result = ncclSuccess;
    if (l->nccl.CommGetAsyncError(g->comm, &result) != ncclSuccess) result = ncclSystemError;
    if (result != ncclSuccess && result != ncclInProgress) return fail(l, "a peer", result, why);
  }
  return true;
}

/* Whether any stream moves, or none has anything to do. */
static bool is_in_time(cuda_nccl *l, bool idle, char *why) {
  int64_t before = l->done;
  cudaError_t error = cudaSuccess;
  while (l->done < l->begun && !(error = cudaEventQuery(l->marks[l->done % MARKS]))) l->done++;
  if (error != cudaSuccess && error != cudaErrorNotReady)
    return cuda_fail(why, "messages", (int)error);
  if (l->done > before || idle) l->since = now();
  if (idle && l->began && now() - l->began > l->longest) l->longest = now() - l->began;
  if (idle) l->began = l->allowance = 0;
  bool late = l->job.timeout_s > 0 && now() - l->since > l->job.timeout_s + l->allowance;
  return !late || fail_late(l, "waiting for messages", why);
}

bool cuda_nccl_are_idle(cuda_nccl *l, bool *ret_failed, char *why) {
  bool idle = true;
  *ret_failed = !peers_are_well(l, why);
  for (const communicator *g = l->all; g && !*ret_failed; g = g->next) {
    cudaError_t error = cudaStreamQuery(g->stream);
    idle &= error == cudaSuccess;
    if (error != cudaSuccess && error != cudaErrorNotReady)
      *ret_failed = !cuda_fail(why, "a stream to other devices", (int)error);
  }
  if (!*ret_failed) *ret_failed = !is_in_time(l, idle, why);
  if (*ret_failed) abort_all(l);
  else if (!idle) rest();
  return idle && !*ret_failed;
}

/* What others still take from here reaches them; those that have failed are NULL by now. */
static void leave(const cuda_nccl *l, ncclComm_t comm) {
  char why[TSR_CUDA_WHY_BYTES];
  if (!comm) return;
  if (complete(l, comm, l->nccl.CommFinalize(comm), "leaving a communicator", why))
    l->nccl.CommDestroy(comm);
  else l->nccl.CommAbort(comm);
}

void cuda_nccl_close(cuda_nccl *l) {
  if (!l) return;
  for (communicator *g = l->all, *next; g; g = next) {
    next = g->next;
    leave(l, g->comm);
    cuda_numbered_events_close(&g->events);
    if (g->stream) cudaStreamDestroy(g->stream);
    free(g);
  }
  leave(l, l->world);
  for (int i = 0; i < MARKS; i++)
    if (l->marks[i]) cudaEventDestroy(l->marks[i]);
  free(l);
}
