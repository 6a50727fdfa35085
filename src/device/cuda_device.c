// SPDX-License-Identifier: Apache-2.0
/* A device as the worker sees it (device.h): memory, one stream of work, and every op's kernels.
 *
 * Memory is managed: the host reaches it between steps, and in a step it stays where the kernels
 * are. Numbers that change from step to step are in it too, so kernels are begun with the same
 * arguments in every step. */
#include "device/cuda_device.h"
#include "device/cuda_links.h"
#include "device/cuda_recast.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Collectives are the executor's. */
_Static_assert(
    (int)TSR_DEVICE_MEMBERS_MAX <= TSR_CUDA_MEMBERS_MAX,
    "a sum of the device is one of the kernel");

const cuda_op cuda_collective = {0};

static const cuda_op *const table[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  &cuda_##lower,
#include "graph/ops.def"
#undef OP
};

/* All but attention over heads that are too wide, and functions without a kernel. */
static bool has(void *state, const tsr_program *p, const tsr_task *t) {
  (void)state;
  if (!table[t->op]->run || !cuda_has_function(p, t)) return false;
  bool attention = tsr_op_facts(t->op) & TSR_FACT_ATTENTION;
  return !attention || p->graph->nodes[t->node].attr.attention.head_dim <= CUDA_HEAD_MAX;
}

/* The keys of a graph's streams of random numbers in a step, one a node. */
typedef struct keys {
  struct keys *next;
  const tsr_graph *graph;
  uint64_t *of_node; /* on the device */
} keys;

typedef struct {
  cuda_state ops;
  tsr_device device;
  keys *keys;         /* the first ones are of the step that is under way */
  cudaStream_t own;   /* the tasks' lane */
  cudaEvent_t passed; /* of a lane that another one is to follow */
  cuda_links *links;  /* NULL: there are no others */
  int processors;
  tsr_cuda_request request;
  char name[32], arch[32], place[32], text[256];
} device;

/* ---- failures: of the world, named by the task that met them ---- */

/* What a kernel does wrong shows some calls later, unless each of them is waited for. */
static void fail(void *state, const cpu_call *call, const char *why) {
  const device *d = state;
  char where[512] = "", report[1536];
  const char *remedy = strchr(why, '\n');
  int length = remedy ? (int)(remedy - why) : (int)strlen(why);
  if (call)
    snprintf(
        where, sizeof where, "rank %d, step %lld: '%s' (%s): ", call->rank->rank,
        (long long)call->moment.step, call->program->graph->nodes[call->task->node].name,
        tsr_op_name(call->task->op));
  snprintf(
      report, sizeof report,
      "%s: %s%.*s%s%s\n      = TESSERA_CUDA_GRAPHS=0 CUDA_LAUNCH_BLOCKING=1 names the task",
      d->name, where, length, why, remedy ? "\n      = " : "", remedy ? remedy + 1 : "");
  d->request.lost(d->request.context, report);
  abort(); /* it does not return */
}

static void check(const device *d, const cpu_call *call, cudaError_t error) {
  char why[TSR_CUDA_WHY_BYTES];
  if (error == cudaSuccess) return;
  cuda_fail(why, "the device failed", (int)error);
  fail((void *)d, call, why);
}

/* ---- memory ---- */

static bool allocate(void *state, int64_t bytes, void **ret_memory, char *why) {
  (void)state;
  cudaError_t error = cudaMallocManaged(ret_memory, (size_t)bytes, cudaMemAttachGlobal);
  if (error == cudaSuccess) error = cudaMemset(*ret_memory, 0, (size_t)bytes);
  if (error == cudaSuccess) return true;
  return cuda_fail(why, "no memory", (int)error);
}

static void release(void *state, void *memory) {
  (void)state;
  cudaFree(memory);
}

static int64_t available(void *state) {
  size_t unused = 0, all;
  check(state, NULL, cudaMemGetInfo(&unused, &all));
  return (int64_t)unused;
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

/* ---- work ---- */

/* Of a graph; they stay where they are, because recorded work knows the place. */
static keys *find_keys(device *d, const tsr_graph *g) {
  keys **at = &d->keys, *k;
  while (*at && (*at)->graph != g) at = &(*at)->next;
  if ((k = *at)) *at = k->next;
  else {
    k = calloc(1, sizeof *k);
    if (!k) fail(d, NULL, "the host has no memory");
    k->graph = g;
    check(
        d, NULL,
        cudaMallocManaged(
            (void **)&k->of_node, sizeof *k->of_node * (size_t)(g->nodes_count + 1),
            cudaMemAttachGlobal));
  }
  k->next = d->keys;
  return d->keys = k;
}

static void begin_step(void *state, const tsr_graph *g, const tsr_moment *m) {
  keys *k = find_keys(state, g);
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].stream)
      k->of_node[i] = tsr_random_key(m->seed, g->nodes[i].stream, (uint64_t)m->step);
}

static void run(void *state, const tsr_cpu_call *call) {
  device *d = state;
  cuda_call c = {*call, &d->ops, d->keys->of_node + call->task->node};
  cuda_run_task(&c, table[call->task->op]);
  check(d, call, cudaGetLastError());
}

static void copy(void *state, void *to, const void *from, int64_t bytes) {
  device *d = state;
  check(d, NULL, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, d->ops.stream));
}

static void sum_members(
    void *state, float *const *out, int outs, float *const *in, int members, const uint8_t *merges,
    int64_t outer, int64_t part, int64_t step, int64_t start) {
  device *d = state;
  tsr_cuda_sum_members(
      d->ops.stream, out, outs, (const float *const *)in, members, merges, outer, part, step,
      start);
  check(d, NULL, cudaGetLastError());
}

static void move(
    void *state, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
    int bytes, int ndim, const int64_t *shape) {
  device *d = state;
  tsr_cuda_move(d->ops.stream, out, out_step, x, x_step, bytes, ndim, shape);
  check(d, NULL, cudaGetLastError());
}

/* With other workers a lane may wait for one that is gone. */
static void wait_watching(device *d) {
  char why[TSR_CUDA_WHY_BYTES];
  bool failed = false, idle = false;
  while (!idle) {
    idle = cuda_links_are_idle(d->links, &failed, why);
    if (failed) fail(d, NULL, why);
    cudaError_t error = cudaStreamQuery(d->own);
    if (error != cudaErrorNotReady) check(d, NULL, error);
    idle &= error == cudaSuccess;
  }
}

static void wait(void *state) {
  device *d = state;
  if (d->links) wait_watching(d);
  else check(d, NULL, cudaStreamSynchronize(d->own));
}

/* ---- other workers ---- */

static bool form(void *state, const int *workers, int count, void **ret_group, char *why) {
  return cuda_links_form(((device *)state)->links, workers, count, ret_group, why);
}

static cudaStream_t lane_of(const device *d, void *group) {
  return group ? cuda_links_stream(group) : d->own;
}

static void use(void *state, void *group) {
  device *d = state;
  d->ops.stream = lane_of(d, group);
}

static void follow(void *state, void *group) {
  device *d = state;
  check(d, NULL, cudaEventRecord(d->passed, lane_of(d, group)));
  check(d, NULL, cudaStreamWaitEvent(d->ops.stream, d->passed, 0));
}

static void exchange(void *state, void *group, const tsr_device_message *messages, int count) {
  device *d = state;
  char why[TSR_CUDA_WHY_BYTES];
  if (!cuda_links_exchange(d->links, group, messages, count, why)) fail(d, NULL, why);
}

static void sum(void *state, void *group, const float *in, float *out, int64_t count) {
  device *d = state;
  char why[TSR_CUDA_WHY_BYTES];
  if (!cuda_links_sum(d->links, group, in, out, count, why)) fail(d, NULL, why);
}

static void sum_slices(void *state, void *group, const float *in, float *out, int64_t count) {
  device *d = state;
  char why[TSR_CUDA_WHY_BYTES];
  if (!cuda_links_sum_slices(d->links, group, in, out, count, why)) fail(d, NULL, why);
}

bool cuda_device_join(const tsr_device *of, const tsr_cuda_job *job, char *why) {
  device *d = of->state;
  if (!cuda_links_open(job, &d->links, why)) return d->links = NULL, false;
  d->device.form = form;
  d->device.use = use;
  d->device.follow = follow;
  d->device.exchange = exchange;
  d->device.sum = sum;
  d->device.sum_slices = sum_slices;
  return true;
}

static void limits(void *state, tsr_dtype dtype, double *ret_flops, double *ret_bytes) {
  const device *d = state;
  tsr_cuda_type type = dtype == TSR_BF16  ? TSR_CUDA_BF16
                       : dtype == TSR_F16 ? TSR_CUDA_F16
                                          : TSR_CUDA_F32;
  cuda_limits(&d->ops, d->processors, type, ret_flops, ret_bytes);
}

/* ---- recorded work: a graph of CUDA's ---- */

static bool record(void *state) {
  device *d = state;
  const char *value = getenv("TESSERA_CUDA_GRAPHS");
  if (value && !strcmp(value, "0")) return false;
  return cudaStreamBeginCapture(d->ops.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
}

/* NULL, where it cannot be noted: the work is begun task by task then. */
static void *recorded(void *state) {
  device *d = state;
  cudaGraph_t graph = NULL;
  cudaGraphExec_t recording = NULL;
  if (cudaStreamEndCapture(d->ops.stream, &graph) == cudaSuccess && graph)
    if (cudaGraphInstantiate(&recording, graph, 0) != cudaSuccess) recording = NULL;
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
  return recording;
}

static void replay(void *state, void *recording) {
  device *d = state;
  check(d, NULL, cudaGraphLaunch(recording, d->ops.stream));
}

static void forget(void *state, void *recording) {
  (void)state;
  cudaGraphExecDestroy(recording);
}

/* ---- opening ---- */

static int64_t
scratch_on_device(const cuda_op *op, const tsr_program *program, const tsr_task *task) {
  cuda_recast_task r;
  bool copies = cuda_recast(program, task, &r);
  const tsr_task *t = copies ? &r.task : task;
  return (copies ? r.bytes : 0) + (op->scratch ? op->scratch(program, t) : 0);
}

int64_t cuda_task_scratch(
    const tsr_task *task, const tsr_program *program, bool output, const void *context) {
  const cuda_op *op = table[task->op];
  bool by_device = has(NULL, program, task) && !output;
  bool by_host = !by_device || tsr_task_has_state(task); /* which may be in a file */
  int64_t host = by_host ? tsr_cpu_scratch(task, program, output, context) : 0;
  int64_t own = by_device ? scratch_on_device(op, program, task) : 0;
  return own > host ? own : host;
}

static void describe(device *d, const tsr_cuda_device *is) {
  snprintf(d->name, sizeof d->name, "cuda:%d", d->request.number);
  snprintf(d->arch, sizeof d->arch, "cuda sm_%d%d", is->major, is->minor);
  snprintf(d->text, sizeof d->text, "%s, %s, sm_%d%d", d->name, is->name, is->major, is->minor);
  memcpy(d->place, is->pci, sizeof d->place);
  d->processors = is->processors;
  d->device = (tsr_device){.name = d->name, .arch = d->arch, .place = d->place, .text = d->text};
  d->device.state = d;
  d->device.allocate = allocate;
  d->device.release = release;
  d->device.available = available;
  d->device.has = has;
  d->device.run = run;
  d->device.copy = copy;
  d->device.sum_members = sum_members;
  d->device.move = move;
  d->device.wait = wait;
  d->device.allocate_host = allocate_host;
  d->device.release_host = release_host;
  d->device.limits = limits;
  d->device.begin_step = begin_step;
  d->device.record = record;
  d->device.recorded = recorded;
  d->device.replay = replay;
  d->device.forget = forget;
}

static bool begin(device *d, char *why) {
  cudaError_t error = cudaSetDevice(d->request.number);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&d->own, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&d->passed, cudaEventDisableTiming);
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
  if (!begin(d, why)) return free(d), false;
  *ret_device = &d->device;
  return true;
}

void cuda_device_close(const tsr_device *of) {
  device *d = of->state;
  for (keys *k = d->keys, *next; k; k = next) {
    next = k->next;
    cudaFree(k->of_node);
    free(k);
  }
  cuda_links_close(d->links);
  tsr_cuda_blas_close(d->ops.blas);
  cudaEventDestroy(d->passed);
  cudaStreamDestroy(d->own);
  free(d);
}
