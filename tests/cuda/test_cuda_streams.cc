// SPDX-License-Identifier: Apache-2.0
/* The emulated runtime shows what hardware may do: programs with all their waits have one result
 * with every seed; of each with a fault, which seed 0 hides, some seed has another result or a
 * report. */
#include "../check.h"
#include "emulated/cuda_runtime_api.h"
#include "kernels/cuda/launch.cuh"
#include <string>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 64, SEEDS = 20 };

static __global__ void add_kernel(int *out, const int *in, int more) {
  out[threadIdx.x] = in[threadIdx.x] + more;
}
static void add(cudaStream_t s, int *out, const int *in, int more) {
  TSR_LAUNCH(add_kernel, (tsr_launch_shape{{1, 1, 1}, {N, 1, 1}, 0}), s, out, in, more);
}

static int *device_zeros() {
  void *memory;
  cudaMalloc(&memory, N * sizeof(int));
  cudaMemset(memory, 0, N * sizeof(int));
  cudaDeviceSynchronize();
  return (int *)memory;
}
static int *pinned(int value) {
  void *memory;
  cudaHostAlloc(&memory, N * sizeof(int), cudaHostAllocDefault);
  for (int i = 0; i < N; i++) ((int *)memory)[i] = value;
  return (int *)memory;
}
static cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, flags);
  return s;
}
static cudaEvent_t event() {
  cudaEvent_t e;
  cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
  return e;
}
static int first_of(const int *device) {
  int numbers[N];
  cudaDeviceSynchronize();
  cudaMemcpy(numbers, device, sizeof numbers, cudaMemcpyDeviceToHost);
  return numbers[0];
}

/* ---- programs; with `fault` something is missing ---- */

static int one_stream_waits(bool fault) {
  cudaStream_t a = stream(), b = stream();
  int *x = device_zeros(), *y = device_zeros();
  cudaEvent_t e = event();
  add(a, x, x, 1);
  cudaEventRecord(e, a);
  if (!fault) cudaStreamWaitEvent(b, e, 0);
  add(b, y, x, 10);
  return first_of(y);
}

/* What is recorded later is not waited for. */
static int record_comes_first(bool fault) {
  cudaStream_t a = stream(), b = stream();
  int *x = device_zeros(), *y = device_zeros();
  cudaEvent_t e = event();
  if (fault) cudaStreamWaitEvent(b, e, 0);
  add(a, x, x, 1);
  cudaEventRecord(e, a);
  if (!fault) cudaStreamWaitEvent(b, e, 0);
  add(b, y, x, 10);
  return first_of(y);
}

/* A later kernel must not overwrite what another stream still reads. */
static int reader_is_waited_for(bool fault) {
  cudaStream_t a = stream(), b = stream();
  int *x = device_zeros(), *y = device_zeros();
  cudaEvent_t written = event(), read = event();
  add(a, x, x, 1);
  cudaEventRecord(written, a);
  cudaStreamWaitEvent(b, written, 0);
  add(b, y, x, 10);
  cudaEventRecord(read, b);
  if (!fault) cudaStreamWaitEvent(a, read, 0);
  add(a, x, x, 100);
  return first_of(y);
}

/* The legacy stream waits for blocking streams, and they for it; non-blocking ones do not. */
static int fill_precedes(bool fault) {
  cudaStream_t s = stream(fault ? cudaStreamNonBlocking : cudaStreamDefault);
  int *x = device_zeros();
  cudaMemset(x, 0x01, N * sizeof(int));
  add(s, x, x, 1);
  return first_of(x);
}
static int legacy_stream_waits(bool fault) {
  cudaStream_t s = stream(fault ? cudaStreamNonBlocking : cudaStreamDefault);
  int *x = device_zeros(), *y = device_zeros();
  add(s, x, x, 1);
  add(NULL, y, x, 10);
  return first_of(y);
}

static int staging_is_kept(bool fault) {
  cudaStream_t s = stream();
  int *x = device_zeros(), *y = device_zeros(), *from = pinned(5);
  cudaEvent_t copied = event();
  cudaMemcpyAsync(x, from, N * sizeof(int), cudaMemcpyHostToDevice, s);
  cudaEventRecord(copied, s);
  add(s, y, x, 10);
  if (!fault) cudaEventSynchronize(copied);
  for (int i = 0; i < N; i++) from[i] = 7;
  return first_of(y);
}

/* Pageable memory is read by the call. */
static int pageable_is_staged(bool) {
  cudaStream_t s = stream();
  int numbers[N] = {5}, *x = device_zeros();
  cudaMemcpyAsync(x, numbers, sizeof numbers, cudaMemcpyHostToDevice, s);
  numbers[0] = 7;
  return first_of(x);
}

static int result_is_waited_for(bool fault) {
  cudaStream_t s = stream();
  int *x = device_zeros(), *to = pinned(0);
  add(s, x, x, 3);
  cudaMemcpyAsync(to, x, N * sizeof(int), cudaMemcpyDeviceToHost, s);
  if (!fault) cudaStreamSynchronize(s);
  return to[0];
}

static int buffer_is_freed_late(bool fault) {
  cudaStream_t s = stream();
  int *x = device_zeros(), *from = pinned(5);
  cudaMemcpyAsync(x, from, N * sizeof(int), cudaMemcpyDefault, s);
  if (!fault) cudaStreamSynchronize(s);
  cudaFreeHost(from);
  return first_of(x);
}

static int query_is_heeded(bool fault) {
  cudaStream_t s = stream();
  int *x = device_zeros(), *to = pinned(0);
  add(s, x, x, 3);
  cudaMemcpyAsync(to, x, N * sizeof(int), cudaMemcpyDefault, s);
  while (cudaStreamQuery(s) == cudaErrorNotReady && !fault) {
  }
  return to[0];
}

static int host_function_comes_in_order(bool fault) {
  static int seen;
  cudaStream_t s = stream(), other = stream();
  int *x = device_zeros(), *to = pinned(0);
  add(s, x, x, 3);
  cudaMemcpyAsync(to, x, N * sizeof(int), cudaMemcpyDeviceToHost, s);
  cudaLaunchHostFunc(
      fault ? other : s, [](void *from) { seen = *(int *)from; }, to);
  cudaDeviceSynchronize();
  return seen;
}

/* A capture of two streams. With the fault its branches touch the same memory. */
static int graph_has_edges(bool fault) {
  cudaStream_t a = stream(), b = stream(), c = stream();
  int *x = device_zeros(), *y = device_zeros();
  cudaEvent_t begun = event(), ended = event();
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
  cudaEventRecord(begun, a);
  if (!fault) add(a, x, x, 1), cudaEventRecord(begun, a);
  cudaStreamWaitEvent(b, begun, 0);
  if (fault) add(a, x, x, 1);
  add(b, y, x, 10);
  cudaEventRecord(ended, b);
  cudaStreamWaitEvent(a, ended, 0);
  add(a, x, x, 100);
  cudaStreamEndCapture(a, &graph);
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphLaunch(executable, c);
  cudaGraphLaunch(executable, a); /* of one graph one launch is behind the other */
  return first_of(y) + first_of(x) * 1000;
}

static int capture_is_joined(bool fault) {
  cudaStream_t a = stream(), b = stream();
  int *x = device_zeros();
  cudaEvent_t begun = event(), ended = event();
  cudaGraph_t graph;
  cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
  cudaEventRecord(begun, a);
  cudaStreamWaitEvent(b, begun, 0);
  add(b, x, x, 1);
  cudaEventRecord(ended, b);
  if (!fault) cudaStreamWaitEvent(a, ended, 0);
  return cudaStreamEndCapture(a, &graph);
}

static int wait_is_not_dropped(bool fault) {
  if (fault)
    setenv("EMULATED_CUDA", (std::string(getenv("EMULATED_CUDA")) + ",drop_wait=1").c_str(), 1);
  return one_stream_waits(false);
}
static int sync_is_not_dropped(bool fault) {
  if (fault)
    setenv("EMULATED_CUDA", (std::string(getenv("EMULATED_CUDA")) + ",drop_sync=2").c_str(), 1);
  return result_is_waited_for(false);
}

/* ---- what is reported ---- */

static int device_memory_is_copied(bool fault) {
  int *x = device_zeros();
  return fault ? x[0] : first_of(x);
}

static int managed_memory_is_idle(bool fault) {
  void *memory;
  cudaStream_t s = stream();
  cudaMallocManaged(&memory, N * sizeof(int), cudaMemAttachGlobal);
  int *x = (int *)memory;
  for (int i = 0; i < N; i++) x[i] = 1;
  add(s, x, x, 1);
  if (!fault) cudaStreamSynchronize(s);
  return x[0];
}

static int memory_is_not_freed(bool fault) {
  cudaStream_t s = stream();
  int *x = device_zeros(), *y = device_zeros();
  if (fault) cudaFree(x);
  add(s, y, x, 1);
  return first_of(y);
}

/* A kernel that is begun before cudaFree is done by then. */
static int free_waits(bool) {
  cudaStream_t s = stream();
  int *x = device_zeros(), *y = device_zeros();
  add(s, y, x, 1);
  cudaFree(x);
  return first_of(y);
}

static int block_is_kept_within(bool fault) {
  cudaStream_t s = stream();
  int *x = device_zeros();
  add(s, x + fault, x + fault, 1);
  return first_of(x + fault - fault);
}

/* ---- how they end ---- */

typedef int program(bool fault);

/* The result as text, or the report's line. */
static std::string run(program *of, bool fault, int seed) {
  int ends[2];
  char text[256] = "";
  if (pipe(ends)) return "no pipe";
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    setenv("EMULATED_CUDA", ("seed=" + std::to_string(seed)).c_str(), 1);
    dprintf(ends[1], "%d\n", of(fault));
    _exit(0);
  }
  close(ends[1]);
  std::string all;
  for (ssize_t n; (n = read(ends[0], text, sizeof text)) > 0;) all.append(text, (size_t)n);
  close(ends[0]);
  waitpid(child, NULL, 0);
  size_t at = all.find("emulator: "); /* a sanitizer may say something before */
  if (at != std::string::npos) all.erase(0, at);
  return all.substr(0, all.find('\n'));
}

static void check(const char *name, program *of, int want, bool has_fault, const char *report) {
  int found = 0, reported = 0;
  std::string last;
  for (int seed = 0; seed <= SEEDS; seed++) {
    std::string right = run(of, false, seed);
    CHECK_AT(right == std::to_string(want), "%s, seed %d: %s", name, seed, right.c_str());
    if (!has_fault) continue;
    std::string wrong = run(of, true, seed);
    found += wrong != right;
    if (wrong != right) last = wrong;
    reported += report && wrong.find(report) != std::string::npos;
  }
  CHECK_AT(found > 0 || !has_fault, "%s: no seed finds the fault", name);
  CHECK_AT(reported > 0 || !report, "%s: no seed reports '%s': %s", name, report, last.c_str());
}
#define PROGRAM(name, want) check(#name, name, want, true, NULL)
#define REPORTED(name, want, report) check(#name, name, want, true, report)

int main(void) {
  PROGRAM(one_stream_waits, 11);
  PROGRAM(record_comes_first, 11);
  PROGRAM(reader_is_waited_for, 11);
  PROGRAM(fill_precedes, 0x01010102);
  PROGRAM(legacy_stream_waits, 11);
  PROGRAM(staging_is_kept, 15);
  check("pageable_is_staged", pageable_is_staged, 5, false, NULL);
  PROGRAM(result_is_waited_for, 3);
  PROGRAM(query_is_heeded, 3);
  PROGRAM(host_function_comes_in_order, 3);
  PROGRAM(graph_has_edges, 202112);
  PROGRAM(capture_is_joined, cudaSuccess);
  PROGRAM(wait_is_not_dropped, 11);
  PROGRAM(sync_is_not_dropped, 3);
  REPORTED(
      device_memory_is_copied, 0,
      "emulator: the host touches device memory: byte 0 of block 1 (256 bytes, ");
  REPORTED(
      managed_memory_is_idle, 2,
      "emulator: the host touches managed memory while operations are pending: ");
  REPORTED(
      memory_is_not_freed, 1,
      "emulator: operation add_kernel touches freed memory: byte 0 of block 1 ");
  REPORTED(
      block_is_kept_within, 1,
      "emulator: operation add_kernel touches memory behind a block: byte 256 ");
  REPORTED(
      buffer_is_freed_late, 5,
      "emulator: the host frees memory of a pending copy: byte 0 of block 2 ");
  check("free_waits", free_waits, 1, false, NULL);
  return check_done("cuda.streams");
}
