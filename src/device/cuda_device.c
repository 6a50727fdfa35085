/* A device as the worker sees it (device.h): memory, one stream of work, and every op's kernels.
 *
 * Memory is managed: the host reaches it between steps, and in a step it stays where the kernels
 * are. Numbers that change from step to step are in it too, so kernels are begun with the same
 * arguments in every step. */
#include "device/cuda_device.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Collectives are the executor's; the others run on the host. */
static const cuda_op cuda_collective, cuda_ring_attention, cuda_ring_out, cuda_ring_rows,
    cuda_ring_dq, cuda_ring_dq_out, cuda_ring_dkv, cuda_ring_dkv_out, cuda_keep,
    cuda_attention_cached, cuda_rope_at, cuda_rows_at, cuda_take_last;

static const cuda_op *const table[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  &cuda_##lower,
#include "graph/ops.def"
#undef OP
};

static bool has(void *state, tsr_op op) {
  (void)state;
  return table[op]->run;
}

/* The keys of a graph's streams of random numbers in a step, one a node. */
typedef struct keys {
  struct keys *next;
  const tsr_graph *graph;
  int64_t step;
  uint64_t *of_node; /* on the device */
} keys;

typedef struct {
  cuda_state ops;
  tsr_device device;
  keys *keys;
  void (*lost)(void *context, const char *report);
  void *context;
} device;

/* ---- failures: of the world, named by the task that met them ---- */

static void fail(void *state, const cpu_call *call, const char *why) {
  const device *d = state;
  const tsr_node *n = call ? &call->program->graph->nodes[call->task->node] : NULL;
  char report[1024];
  snprintf(
      report, sizeof report, "cuda: %s%s%s%s%s", n ? "'" : "", n ? n->name : "", n ? "' (" : "",
      n ? tsr_op_name(call->task->op) : "", n ? "): " : "");
  size_t length = strlen(report);
  snprintf(report + length, sizeof report - length, "%s", why);
  d->lost(d->context, report);
  abort(); /* it does not return */
}

static void check(const device *d, const cpu_call *call, cudaError_t error) {
  if (error != cudaSuccess) fail((void *)d, call, cudaGetErrorString(error));
}

/* ---- memory ---- */

static bool allocate(void *state, int64_t bytes, void **ret_memory, char *why) {
  (void)state;
  cudaError_t error = cudaMallocManaged(ret_memory, (size_t)bytes, cudaMemAttachGlobal);
  if (error == cudaSuccess) error = cudaMemset(*ret_memory, 0, (size_t)bytes);
  if (error == cudaSuccess) return true;
  cudaGetLastError(); /* it is told */
  snprintf(why, 512, "%s", cudaGetErrorString(error));
  return false;
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

/* ---- work ---- */

/* The device is done with the last step's when a step begins. */
static const uint64_t *keys_for(device *d, const tsr_cpu_call *call) {
  const tsr_graph *g = call->program->graph;
  keys *k = d->keys;
  while (k && k->graph != g) k = k->next;
  if (!k) {
    k = calloc(1, sizeof *k);
    if (!k) fail(d, call, "no memory");
    *k = (keys){.next = d->keys, .graph = g, .step = INT64_MIN};
    check(
        d, call,
        cudaMallocManaged(
            (void **)&k->of_node, sizeof *k->of_node * (size_t)(g->nodes_count + 1),
            cudaMemAttachGlobal));
    d->keys = k;
  }
  for (int i = 0; k->step != call->moment.step && i < g->nodes_count; i++)
    if (g->nodes[i].stream)
      k->of_node[i] =
          tsr_random_key(call->moment.seed, g->nodes[i].stream, (uint64_t)call->moment.step);
  k->step = call->moment.step;
  return k->of_node;
}

static void run(void *state, const tsr_cpu_call *call) {
  device *d = state;
  cuda_call c = {*call, &d->ops, keys_for(d, call) + call->task->node};
  table[call->task->op]->run(&c);
  check(d, call, cudaGetLastError());
}

static void copy(void *state, void *to, const void *from, int64_t bytes) {
  device *d = state;
  check(d, NULL, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, d->ops.stream));
}

static void sum_members(
    void *state, float *const *out, int outs, float *const *in, int members, int64_t outer,
    int64_t part, int64_t step, int64_t start) {
  device *d = state;
  tsr_cuda_sum_members(
      d->ops.stream, out, outs, (const float *const *)in, members, outer, part, step, start);
  check(d, NULL, cudaGetLastError());
}

static void move(
    void *state, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
    int bytes, int ndim, const int64_t *shape) {
  device *d = state;
  tsr_cuda_move(d->ops.stream, out, out_step, x, x_step, bytes, ndim, shape);
  check(d, NULL, cudaGetLastError());
}

static void wait(void *state) {
  device *d = state;
  check(d, NULL, cudaStreamSynchronize(d->ops.stream));
}

/* ---- opening ---- */

int64_t cuda_task_scratch(
    const tsr_task *task, const tsr_program *program, bool output, const void *context) {
  const cuda_op *op = table[task->op];
  if (!op->run || output) return tsr_cpu_scratch(task, program, output, context);
  return op->scratch ? op->scratch(program, task) : 0;
}

bool cuda_device_open(
    int number, bool fast, void (*lost)(void *context, const char *report), void *context,
    const tsr_device **ret_device, char *why) {
  device *d = calloc(1, sizeof *d);
  if (!d) return snprintf(why, 512, "no memory"), false;
  *d = (device){.lost = lost, .context = context};
  d->ops.fail = fail;
  d->ops.context = d;
  d->device = (tsr_device){.name = "cuda", .state = d, .allocate = allocate, .release = release};
  d->device.available = available;
  d->device.has = has;
  d->device.run = run;
  d->device.copy = copy;
  d->device.sum_members = sum_members;
  d->device.move = move;
  d->device.wait = wait;
  cudaError_t error = cudaSetDevice(number);
  if (error == cudaSuccess)
    error = cudaStreamCreateWithFlags(&d->ops.stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) {
    snprintf(why, 512, "device %d: %s", number, cudaGetErrorString(error));
    return free(d), false;
  }
  if (!tsr_cuda_blas_open(fast, &d->ops.blas, why)) return free(d), false;
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
  tsr_cuda_blas_close(d->ops.blas);
  cudaStreamDestroy(d->ops.stream);
  free(d);
}
