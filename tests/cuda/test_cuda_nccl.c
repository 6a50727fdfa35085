// SPDX-License-Identifier: Apache-2.0
/* The emulated NCCL between two processes: communicators of one split, messages in a captured graph
 * that is launched twice, and a report where two processes begin collectives in other orders. */
#include "tests/check.h"
#include <nccl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 16, WRONG = 1 };

typedef struct {
  int rank;
  ncclComm_t comm[2];
  cudaStream_t stream[2];
  float *in, *out; /* of cudaMallocManaged */
} process;

static void wait_for(ncclComm_t comm) {
  ncclResult_t result = ncclInProgress;
  while (result == ncclInProgress) {
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) exit(WRONG);
  }
}

static process open_process(ncclUniqueId id, int rank) {
  process p = {.rank = rank};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t world;
  config.blocking = 0;
  ncclCommInitRankConfig(&world, 2, id, rank, &config);
  wait_for(world);
  for (int i = 0; i < 2; i++) { /* of the second one the order is the other one */
    ncclCommSplit(world, 0, i ? 1 - rank : rank, &p.comm[i], &config);
    wait_for(p.comm[i]);
    cudaStreamCreateWithFlags(&p.stream[i], cudaStreamNonBlocking);
  }
  cudaMallocManaged((void **)&p.in, N * sizeof *p.in, cudaMemAttachGlobal);
  cudaMallocManaged((void **)&p.out, N * sizeof *p.out, cudaMemAttachGlobal);
  return p;
}

static void add(const process *p, int comm) {
  ncclAllReduce(p->in, p->out, N, ncclFloat32, ncclSum, p->comm[comm], p->stream[comm]);
}

/* Sums of 1 and 2, then of 10 and 20, by one graph. */
static int run_graph(const process *p) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaStreamBeginCapture(p->stream[1], cudaStreamCaptureModeThreadLocal);
  add(p, 1);
  if (cudaStreamEndCapture(p->stream[1], &graph) || cudaGraphInstantiate(&executable, graph, 0))
    return WRONG;
  for (int scale = 1; scale <= 10; scale += 9) {
    for (int i = 0; i < N; i++) p->in[i] = (float)((p->rank + 1) * scale);
    cudaGraphLaunch(executable, p->stream[1]);
    cudaStreamSynchronize(p->stream[1]);
    for (int i = 0; i < N; i++)
      if (p->out[i] != (float)(3 * scale)) return WRONG;
  }
  return 0;
}

static int begin_in_order(const process *p) {
  for (int i = 0; i < 2; i++) add(p, i);
  return cudaDeviceSynchronize();
}
static int begin_in_other_orders(const process *p) {
  for (int i = 0; i < 2; i++) add(p, p->rank ? i : 1 - i);
  return cudaDeviceSynchronize();
}
/* A transfer in each direction. */
static int begin_transfers(const process *p) {
  for (int i = 0; i < 2; i++) {
    int comm = p->rank ? i : 1 - i;
    int peer = comm ? p->rank : 1 - p->rank; /* in the second one the ranks are the other ones */
    if (comm == p->rank) ncclSend(p->in, N, ncclFloat32, peer, p->comm[comm], p->stream[comm]);
    else ncclRecv(p->out, N, ncclFloat32, peer, p->comm[comm], p->stream[comm]);
  }
  return cudaDeviceSynchronize();
}

/* Whether both processes end with 0; what they print is dropped. */
static bool succeed(int (*run)(const process *p), const char *orders) {
  pid_t pids[2];
  ncclUniqueId id;
  bool ok = true;
  ncclGetUniqueId(&id);
  fflush(stdout);
  for (int rank = 0; rank < 2; rank++) {
    if ((pids[rank] = fork())) continue;
    setenv("EMULATED_CUDA", orders, 1);
    alarm(60);
    if (!freopen("/dev/null", "w", stderr)) _exit(WRONG);
    process p = open_process(id, rank);
    _exit(run(&p));
  }
  for (int ended = 0; ended < 2; ended++) {
    int status = -1;
    pid_t pid = waitpid(-1, &status, 0);
    if (status && ok) kill(pids[pid == pids[0]], SIGALRM);
    ok &= !status;
  }
  return ok;
}

int main(void) {
  static const char *const orders[] = {"seed=0", "seed=1", "seed=2", "seed=3"};
  for (int i = 0; i < 4; i++) {
    CHECK_AT(succeed(run_graph, orders[i]), "a graph, %s", orders[i]);
    if (!i) continue; /* a group must be done before the next one begins */
    CHECK_AT(succeed(begin_transfers, orders[i]), "transfers, %s", orders[i]);
    CHECK_AT(succeed(begin_in_order, orders[i]), "one order, %s", orders[i]);
    CHECK_AT(!succeed(begin_in_other_orders, orders[i]), "other orders, %s", orders[i]);
  }
  return check_done("cuda.nccl");
}
