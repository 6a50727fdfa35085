// SPDX-License-Identifier: Apache-2.0
/* A CUDA device (device.h): memory, one stream of tasks and one of copies, and every op's kernels.
 *
 * Numbers that change from step to step are in its memory too, so kernels are begun with the same
 * arguments in every step. */
#include "device/cuda/device.h"
#include "device/cuda/copy_stream.h"
#include "device/cuda/nan_place.h"
#include "device/cuda/nccl.h"
#include "device/cuda/random_keys.h"
#include "device/cuda/staging.h"
#include "device/cuda/wgmma.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(
    (int)TSR_DEVICE_MEMBERS_MAX <= TSR_CUDA_MEMBERS_MAX,
    "a sum of the device is one of the kernel");

typedef struct {
  cuda_state ops;
  tsr_device device;
  cuda_random_keys *keys; /* the first ones are of the step that is under way */
  cudaStream_t own;       /* of the tasks */
  cudaEvent_t passed;     /* of a stream that another one is to wait for */
  cuda_nan_place nan_place;
  cuda_staging staging;
  cuda_copy_stream copies;
  cuda_nccl *nccl; /* NULL: this process is alone */
  int processors;
  int64_t used_at_open, allocated; /* bytes */
  bool capturing;
  char uncaptured[TSR_CUDA_WHY_BYTES]; /* why the capture under way fails; "": it does not so far */
  tsr_cuda_request request;
  char name[32], arch[128], location[32], text[256];
} device;

/* ---- runtime failures, with the task in which they showed ---- */

/* What a kernel does wrong shows some calls later, unless each of them is waited for. */
static void lose(const device *d, const tsr_task_call *call, const char *why) {
  char where[512] = "", report[1536];
  const char *remedy = strchr(why, '\n');
  int length = remedy ? (int)(remedy - why) : (int)strlen(why);
  if (call)
    snprintf(
        where, sizeof where, "rank %d, step %lld: '%s' (%s): ", call->rank->rank,
        (long long)call->at.step, call->program->graph->nodes[call->task->node].name,
        tsr_op_name(call->task->op));
  snprintf(
      report, sizeof report,
      "%s: %s%.*s%s%s\n      = TESSERA_CUDA_GRAPHS=0 CUDA_LAUNCH_BLOCKING=1 names the task",
      d->name, where, length, why, remedy ? "\n      = " : "", remedy ? remedy + 1 : "");
  d->request.lost(d->request.context, report);
  abort(); /* it does not return */
}

/* Inside a capture nothing has begun: the step is begun without it, and what is wrong shows there
 * again. */
static void fail(void *state, const tsr_task_call *call, const char *why) {
  device *d = state;
  if (!d->capturing) lose(d, call, why);
  if (!*d->uncaptured) snprintf(d->uncaptured, sizeof d->uncaptured, "%s", why);
}

static void check(device *d, const tsr_task_call *call, cudaError_t error) {
  char why[TSR_CUDA_WHY_BYTES];
  if (error == cudaSuccess) return;
  cuda_fail(why, "the device failed", (int)error);
  fail(d, call, why);
}

/* ---- memory ---- */

static bool allocate(void *state, int64_t bytes, void **ret_memory, char *why) {
  device *d = state;
  cudaError_t error = cudaMalloc(ret_memory, (size_t)bytes);
  if (error == cudaSuccess) error = cudaMemsetAsync(*ret_memory, 0, (size_t)bytes, d->own);
  /* Work of any stream may use the memory from now on. */
  if (error == cudaSuccess) error = cudaStreamSynchronize(d->own);
  if (error != cudaSuccess) return cuda_fail(why, "no memory", (int)error);
  d->allocated += bytes;
  return true;
}

static void release(void *state, void *memory, int64_t bytes) {
  ((device *)state)->allocated -= bytes;
  cudaFree(memory);
}

/* Kernels are loaded when they are first begun, and graphs are made after the first step. */
static int64_t reserve_of(size_t all) {
  enum { MOST = 256 << 20, PART = 64 };
  return all / PART < MOST ? (int64_t)all / PART : MOST;
}

static int64_t available(void *state) {
  size_t unused = 0, all = 0;
  check(state, NULL, cudaMemGetInfo(&unused, &all));
  int64_t left = (int64_t)unused - reserve_of(all);
  return left > 0 ? left : 0;
}

static void memory(void *state, tsr_device_memory *ret) {
  device *d = state;
  size_t unused = 0, all = 0;
  check(d, NULL, cudaMemGetInfo(&unused, &all));
  int64_t since = (int64_t)(all - unused) - d->used_at_open - d->allocated;
  *ret = (tsr_device_memory){
      .bytes = (int64_t)all,
      .at_open = d->used_at_open,
      .libraries = since > 0 ? since : 0,
      .reserve = reserve_of(all)};
}

static bool allocate_host(void *state, int64_t bytes, void **ret_memory, char *why) {
  (void)state;
  cudaError_t error = cudaHostAlloc(ret_memory, (size_t)bytes, cudaHostAllocDefault);
  if (error != cudaSuccess) return cuda_fail(why, "no memory", (int)error);
  memset(*ret_memory, 0, (size_t)bytes);
  return true;
}

static void release_host(void *state, void *memory) {
  (void)state;
  cudaFreeHost(memory);
}

/* ---- staging ---- */

static void begin_read(void *state, int buffer, const void *from, int64_t bytes) {
  device *d = state;
  char *to = cuda_staging_buffer(&d->staging, buffer);
  check(d, NULL, cuda_staging_begin(&d->staging, buffer, to, from, bytes, d->own));
}

static void begin_write(void *state, int buffer, void *to, int64_t bytes) {
  device *d = state;
  const char *from = cuda_staging_buffer(&d->staging, buffer);
  check(d, NULL, cuda_staging_begin(&d->staging, buffer, to, from, bytes, d->own));
}

static char *end_copy(void *state, int buffer) {
  device *d = state;
  check(d, NULL, cudaEventSynchronize(d->staging.done[buffer]));
  return cuda_staging_buffer(&d->staging, buffer);
}

/* ---- work ---- */

/* The copy is no part of a captured graph, which reads the keys where they always are. The device
 * is idle, so the last step's copy is done. */
static void begin_step(void *state, const tsr_graph *g, const tsr_step_context *step) {
  device *d = state;
  check(d, NULL, cuda_random_keys_set(&d->keys, g, step, d->own));
}

/* With other processes a stream may wait for one that is gone. */
static void wait_watching(device *d) {
  char why[TSR_CUDA_WHY_BYTES];
  bool failed = false, idle = false;
  while (!idle) {
    idle = cuda_nccl_are_idle(d->nccl, &failed, why);
    if (failed) lose(d, NULL, why);
    cudaError_t error = cudaStreamQuery(d->own);
    if (error != cudaErrorNotReady) check(d, NULL, error);
    idle &= error == cudaSuccess;
  }
}

static void wait(void *state) {
  device *d = state;
  if (d->nccl) wait_watching(d);
  else check(d, NULL, cudaStreamSynchronize(d->own));
}

static uint64_t take_nan_scores(void *state) {
  device *d = state;
  check(d, NULL, cuda_nan_place_take(&d->nan_place, d->own));
  wait(d);
  return *d->nan_place.read;
}

static void hash(void *state, const tsr_hash_part *p, uint64_t *sum) {
  device *d = state;
  tsr_cuda_padding padding = {p->padding.dim, p->padding.real, p->padding.blocks};
  tsr_cuda_hash(
      d->ops.stream, cuda_type_of(p->dtype), sum, p->data, &p->part, &padding, p->begin, p->end);
  check(d, NULL, cudaGetLastError());
}

/* Of a fused update each weight is the first of as many inputs. */
static void hash_updates(device *d, const tsr_task_call *c, const tsr_update_hashes *h) {
  const tsr_task *t = c->task;
  int updates = t->fused ? t->nodes_count : 1, each = t->inputs_count / updates;
  for (int i = 0; i < updates; i++) {
    const tsr_tensor *w = &t->inputs[i * each];
    int param = tsr_operand_value(c, w)->param;
    tsr_hash_part part = {
        .data = tsr_operand_address(c, w),
        .dtype = w->dtype,
        .part = tsr_operand_slice(c, w),
        .padding = *tsr_operand_padding(c, w),
        .end = tsr_tensor_elements(w)};
    if (h->counted[c->rank->rank * h->params + param]) hash(d, &part, &h->sums[param]);
  }
}

static void run_rank(device *d, const tsr_launch *launch, int rank) {
  cuda_call c = {launch->call, &d->ops, d->keys->of_node + launch->call.task->node};
  c.call.rank = &launch->memory[rank];
  cuda_run_task(&c);
  if (launch->hashes) hash_updates(d, &c.call, launch->hashes);
  check(d, &c.call, cudaGetLastError());
}

static void run(void *state, const tsr_launch *launch) {
  const tsr_task_timer *timer = launch->timer;
  for (int i = 0; i < launch->ranks_count; i++) {
    int64_t begin = timer ? timer->now(timer->context) : 0;
    run_rank(state, launch, launch->ranks[i]);
    if (!timer) continue;
    wait(state);
    timer->extend(timer->context, launch->ranks[i], begin);
  }
}

static void copy(void *state, const tsr_device_copy *copies, int count) {
  device *d = state;
  for (int i = 0; i < count; i++)
    check(
        d, NULL,
        cudaMemcpyAsync(
            copies[i].to, copies[i].from, (size_t)copies[i].bytes, cudaMemcpyDefault,
            d->ops.stream));
}

static void begin_copies(void *state, int number, const tsr_device_copy *copies, int count) {
  device *d = state;
  check(d, NULL, cuda_copies_begin(&d->copies, d->own, number, copies, count));
}

static void wait_for_copies(void *state, int number) {
  device *d = state;
  check(d, NULL, cuda_copies_wait(&d->copies, d->own, number));
}

static void sum_members(void *state, const tsr_members_sum *sum) {
  device *d = state;
  tsr_cuda_sum_members(d->ops.stream, sum);
  check(d, NULL, cudaGetLastError());
}

static void move(
    void *state, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
    int bytes, int ndim, const int64_t *shape) {
  device *d = state;
  tsr_cuda_move(d->ops.stream, out, out_step, x, x_step, bytes, ndim, shape);
  check(d, NULL, cudaGetLastError());
}

/* ---- other processes ---- */

static bool
form_communicator(void *state, int color, int key, int all, void **ret_communicator, char *why) {
  device *d = state;
  int blocks = all ? d->processors / all : 0;
  return cuda_nccl_form(d->nccl, color, key, blocks, ret_communicator, why);
}

static cudaStream_t stream_of(const device *d, void *communicator) {
  return communicator ? cuda_nccl_stream(communicator) : d->own;
}

static void set_stream(void *state, void *communicator) {
  device *d = state;
  d->ops.stream = stream_of(d, communicator);
}

/* A capture begins on the tasks' stream, and another one is in it from when it waits for one that
 * is. What has no work in the capture has none at all: the device was idle when it began. */
static void wait_for_stream(void *state, void *communicator) {
  device *d = state;
  cudaStream_t from = stream_of(d, communicator), to = d->ops.stream;
  if (d->capturing && from != d->own && !cuda_nccl_is_captured(d->nccl, from)) return;
  check(d, NULL, cudaEventRecord(d->passed, from));
  check(d, NULL, cudaStreamWaitEvent(to, d->passed, 0));
  if (d->capturing && to != d->own) cuda_nccl_set_captured(d->nccl, to);
}

static void mark_stream(void *state, void *communicator, int number) {
  check(state, NULL, cuda_nccl_mark_stream(communicator, number));
}

static void wait_for_mark(void *state, void *communicator, int number) {
  device *d = state;
  check(d, NULL, cuda_nccl_wait_for_mark(communicator, number, d->ops.stream));
}

static void
exchange(void *state, void *communicator, const tsr_device_message *messages, int count) {
  device *d = state;
  char why[TSR_CUDA_WHY_BYTES];
  if (!cuda_nccl_exchange(d->nccl, communicator, messages, count, why)) lose(d, NULL, why);
}

static void
sum(void *state, void *communicator, tsr_dtype dtype, const void *in, void *out, int64_t count) {
  device *d = state;
  char why[TSR_CUDA_WHY_BYTES];
  if (!cuda_nccl_sum(d->nccl, communicator, dtype, in, out, count, why)) lose(d, NULL, why);
}

static void sum_slices(
    void *state, void *communicator, tsr_dtype dtype, const void *in, void *out, int64_t count) {
  device *d = state;
  char why[TSR_CUDA_WHY_BYTES];
  if (!cuda_nccl_sum_slices(d->nccl, communicator, dtype, in, out, count, why)) lose(d, NULL, why);
}

/* Bits depend on the version where the library adds. */
static void add_nccl(device *d) {
  char version[32];
  int number = cuda_nccl_version(d->nccl);
  snprintf(
      version, sizeof version, ", NCCL %d.%d.%d", number / 10000, number / 100 % 100, number % 100);
  strncat(d->text, version, sizeof d->text - strlen(d->text) - 1);
  if (d->request.fast) strncat(d->arch, version, sizeof d->arch - strlen(d->arch) - 1);
}

bool cuda_device_join(const tsr_device *of, const tsr_cuda_job *job, char *why) {
  device *d = of->state;
  if (!cuda_nccl_open(job, &d->nccl, why)) return d->nccl = NULL, false;
  add_nccl(d);
  d->device.form_communicator = form_communicator;
  d->device.set_stream = set_stream;
  d->device.wait_for_stream = wait_for_stream;
  d->device.mark_stream = mark_stream;
  d->device.wait_for_mark = wait_for_mark;
  d->device.exchange = exchange;
  d->device.sum = sum;
  d->device.sum_slices = sum_slices;
  return true;
}

static void limits(void *state, tsr_dtype dtype, double *ret_flops, double *ret_bytes) {
  const device *d = state;
  cuda_measure_peaks(&d->ops, d->processors, cuda_type_of(dtype), ret_flops, ret_bytes);
}

/* ---- capture: a CUDA graph ---- */

static bool begin_capture(void *state, char *why) {
  device *d = state;
  const char *value = getenv("TESSERA_CUDA_GRAPHS");
  *why = 0;
  if (value && !strcmp(value, "0")) return false;
  cudaError_t error = cudaStreamBeginCapture(d->own, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return cuda_fail(why, "no capture begins", (int)error);
  *d->uncaptured = 0;
  d->capturing = true;
  if (d->nccl) cuda_nccl_begin_capture(d->nccl);
  return true;
}

/* The streams of communicators join that of the tasks, which ends the capture. */
static cudaError_t end_streams(device *d, cudaGraph_t *ret_graph) {
  cudaStream_t of;
  while (d->nccl && cuda_nccl_take_captured(d->nccl, &of)) {
    check(d, NULL, cudaEventRecord(d->passed, of));
    check(d, NULL, cudaStreamWaitEvent(d->own, d->passed, 0));
  }
  if (d->nccl) cuda_nccl_end_capture(d->nccl);
  return cudaStreamEndCapture(d->own, ret_graph);
}

static void *end_capture(void *state, char *why) {
  device *d = state;
  cudaGraph_t graph = NULL;
  cudaGraphExec_t executable = NULL;
  cudaError_t error = end_streams(d, &graph);
  d->capturing = false;
  *why = 0;
  if (error == cudaSuccess && !*d->uncaptured) error = cudaGraphInstantiate(&executable, graph, 0);
  if (graph && cudaGraphDestroy(graph) != cudaSuccess && error == cudaSuccess)
    error = cudaErrorInvalidValue;
  if (*d->uncaptured) snprintf(why, TSR_CUDA_WHY_BYTES, "%s", d->uncaptured);
  else if (error != cudaSuccess) cuda_fail(why, "the capture failed", (int)error);
  cudaGetLastError(); /* it is in `why` */
  if (!*why) return executable;
  if (executable) cudaGraphExecDestroy(executable);
  char *remedy = strchr(why, '\n');
  if (remedy) *remedy = 0;
  return NULL;
}

static void launch(void *state, void *graph) {
  device *d = state;
  char why[TSR_CUDA_WHY_BYTES];
  check(d, NULL, cudaGraphLaunch(graph, d->own));
  if (d->nccl && !cuda_nccl_mark_graph(d->nccl, d->own, why)) lose(d, NULL, why);
}

static void destroy_graph(void *state, void *graph) {
  (void)state;
  cudaGraphExecDestroy(graph);
}

/* ---- opening ---- */

static void describe(device *d, const tsr_cuda_device *is) {
  snprintf(d->name, sizeof d->name, "cuda:%d", d->request.number);
  /* The library's choices depend on its version and on the number of multiprocessors. */
  size_t blas = cublasLtGetVersion();
  snprintf(
      d->arch, sizeof d->arch, "cuda sm_%d%d, %d SMs, cuBLASLt %zu.%zu", is->major, is->minor,
      is->processors, blas / 10000, blas / 100 % 100);
  snprintf(d->text, sizeof d->text, "%s, %s, sm_%d%d", d->name, is->name, is->major, is->minor);
  memcpy(d->location, is->pci, sizeof d->location);
  d->processors = is->processors;
  d->device = (tsr_device){.name = d->name, .arch = d->arch, .text = d->text, .threads = 1};
  d->device.location = d->location;
  d->device.state = d;
  d->device.allocate = allocate;
  d->device.release = release;
  d->device.available = available;
  d->device.memory = memory;
  d->device.run = run;
  d->device.copy = copy;
  d->device.begin_copies = begin_copies;
  d->device.wait_for_copies = wait_for_copies;
  d->device.hash = hash;
  d->device.take_nan_scores = take_nan_scores;
  d->device.sum_members = sum_members;
  d->device.move = move;
  d->device.wait = wait;
  d->device.allocate_host = allocate_host;
  d->device.release_host = release_host;
  d->device.staging_bytes = CUDA_STAGING_BYTES;
  d->device.access = &d->staging.access;
  d->device.begin_read = begin_read;
  d->device.begin_write = begin_write;
  d->device.end_copy = end_copy;
  d->device.limits = limits;
  d->device.begin_step = begin_step;
  d->device.begin_capture = begin_capture;
  d->device.end_capture = end_capture;
  d->device.launch = launch;
  d->device.destroy_graph = destroy_graph;
}

static bool begin(device *d, char *why) {
  size_t unused = 0, all = 0;
  cudaError_t error = cudaSetDevice(d->request.number);
  if (error == cudaSuccess) error = cudaMemGetInfo(&unused, &all);
  d->used_at_open = (int64_t)(all - unused);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&d->own, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cuda_copy_stream_open(&d->copies);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&d->passed, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cuda_staging_open(&d->staging);
  if (error == cudaSuccess) error = cuda_nan_place_open(&d->nan_place, d->own);
  d->ops.nan_place = d->nan_place.least;
  d->ops.stream = d->own;
  if (error != cudaSuccess) return cuda_fail(why, d->name, (int)error);
  d->ops.fast = d->request.fast;
  return tsr_cuda_blas_open(d->request.fast, &d->ops.blas, why);
}

bool cuda_device_open(const tsr_cuda_request *request, const tsr_device **ret_device, char *why) {
  tsr_cuda_device is;
  if (!cuda_describe(request->number, &is, why) || !cuda_fits(&is, why)) return false;
  device *d = calloc(1, sizeof *d);
  if (!d) return snprintf(why, TSR_CUDA_WHY_BYTES, "no memory"), false;
  d->request = *request;
  d->ops.fail = fail;
  d->ops.context = d;
  describe(d, &is);
  if (!begin(d, why) || !cuda_wgmma_choose(&is, &d->ops.wgmma, why)) return free(d), false;
  if (d->ops.wgmma) strncat(d->arch, ", wgmma", sizeof d->arch - strlen(d->arch) - 1);
  *ret_device = &d->device;
  return true;
}

void cuda_device_close(const tsr_device *of) {
  device *d = of->state;
  cuda_random_keys_free(d->keys);
  cuda_nccl_close(d->nccl);
  tsr_cuda_blas_close(d->ops.blas);
  cuda_staging_close(&d->staging);
  cuda_copy_stream_close(&d->copies);
  cuda_nan_place_close(&d->nan_place);
  cudaEventDestroy(d->passed);
  cudaStreamDestroy(d->own);
  free(d);
}
