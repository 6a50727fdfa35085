// SPDX-License-Identifier: Apache-2.0
/* Graphs: a node may run as soon as those that it depends on are done, whatever stream it was
 * captured on. */
#include "streams.h"

using namespace emulator;

struct CUgraph_st {
  std::vector<graph_node> nodes;
  op last; /* of its launches: no two run at a time */
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (!stream) return cudaErrorStreamCaptureUnsupported;
  if (stream->captured) return cudaErrorStreamCaptureInvalidated;
  stream->captured = std::make_shared<capture>();
  stream->heads = {};
  return cudaSuccess;
}

/* Whether the stream's nodes are all ones that the origin's next node would wait for. */
static bool is_joined(const CUstream_st *s, const CUstream_st *origin) {
  std::vector<bool> reached(origin->captured->nodes.size());
  for (size_t head : origin->heads) reached[head] = true;
  for (size_t i = reached.size(); i-- > 0;)
    for (size_t before : origin->captured->nodes[i].after)
      if (reached[i]) reached[before] = true;
  for (size_t head : s->heads)
    if (!reached[head]) return false;
  return true;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret) {
  *ret = nullptr;
  if (!stream || !stream->captured) return cudaErrorStreamCaptureInvalidated;
  std::shared_ptr<capture> of = stream->captured;
  bool joined = true;
  for (CUstream_st *s : streams_all())
    if (s != stream && s->captured == of) {
      joined &= is_joined(s, stream);
      s->captured = nullptr;
      s->heads = {};
    }
  stream->captured = nullptr;
  stream->heads = {};
  static long long captures;
  if (of->is_invalid || is_dropped("uncaptured=", &captures))
    return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *ret = new CUgraph_st{std::move(of->nodes), nullptr};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret, cudaGraph_t graph, unsigned long long) {
  return *ret = new CUgraph_st{graph->nodes, nullptr}, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return delete executable, cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  CUstream_st *s = stream_at(stream);
  if (s->captured) return cudaErrorStreamCaptureUnsupported;
  auto nothing = []() { return DONE; };
  cudaError_t error = stream_begin(s, "cudaGraphLaunch", nothing, nullptr, 0, executable->last);
  if (error) return error;
  op begin = s->last;
  std::vector<op> nodes;
  for (const graph_node &n : executable->nodes) {
    std::vector<op> after = {begin};
    for (size_t i : n.after) after.push_back(nodes[i]);
    nodes.push_back(queue_add(n.what, lane_new(), after, n.run));
  }
  nodes.push_back(begin);
  executable->last = s->last = queue_add("the end of a graph", s->lane, nodes, nothing);
  return emulated_count();
}
