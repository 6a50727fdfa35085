// SPDX-License-Identifier: Apache-2.0
/* Streams, events and graphs of emulated devices: what depends on what (queue.h). */
#ifndef TSR_TESTS_CUDA_STREAMS_H
#define TSR_TESTS_CUDA_STREAMS_H
#include "cuda_runtime_api.h"
#include "queue.h"

namespace emulator {

/* What streams were given while they were captured. Nodes depend on those before them alone. */
struct graph_node {
  const char *what;
  work run;
  std::vector<size_t> after;
};
struct capture {
  std::vector<graph_node> nodes;
  bool is_invalid;
};

} // namespace emulator

struct CUstream_st {
  emulated_stream interface; /* the first member */
  std::shared_ptr<emulator::queue_lane> lane;
  bool is_blocking; /* it and the legacy default stream wait for each other */
  emulator::op last;
  std::shared_ptr<emulator::capture> captured; /* NULL: it is not captured */
  std::vector<size_t> heads;                   /* the nodes that the next one depends on */
};

struct CUevent_st {
  emulator::op record; /* NULL: it was not recorded, or in a capture */
  std::shared_ptr<emulator::capture> captured;
  std::vector<size_t> heads;
};

namespace emulator {

/* The stream of a handle, of which NULL is the legacy default stream. */
CUstream_st *stream_at(cudaStream_t stream);
bool stream_is_captured();
const std::vector<CUstream_st *> &streams_all();
/* Begins an operation on a stream, or adds it to the graph that is captured. `more`: what it
 * depends on besides. */
cudaError_t stream_begin(
    cudaStream_t stream, const char *what, work run, const void *host = nullptr,
    size_t host_bytes = 0, const op &more = nullptr);
/* The same of what is done at once when it runs. */
cudaError_t stream_do(
    cudaStream_t stream, const char *what, const std::function<void()> &run,
    const void *host = nullptr, size_t host_bytes = 0);
/* Counts calls; the one whose number the word has in $EMULATED_CUDA is dropped. */
bool is_dropped(const char *word, long long *calls);

} // namespace emulator

/* Counts what a process begins, for "fail=" (runtime.cc). */
cudaError_t emulated_count(void);

#endif
