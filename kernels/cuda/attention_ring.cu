// SPDX-License-Identifier: Apache-2.0
/* Attention over units: of a sequence whose members go round a ring (Ring attention, Liu et al.
 * 2023), or of one that is whole. The passes without tensor cores, and what begins and ends them.
 */
#include "kernels/cuda/attention_simt_passes.cuh"
#include "kernels/cuda/attention_ring.cuh"
#include <assert.h>

template <int W> static __device__ inline int simt_column_in(int c, int64_t D) {
  int d = simt_column<W>(c);
  return d < D ? d : -1;
}

template <typename T, int W> struct ring_out {
  typedef T N;
  typedef forward_tile<W> S;
  static constexpr tsr_attention_sum SUM = TSR_ATTENTION_OUT;
  static constexpr int THREADS = SIMT_THREADS, OWN = S::QUERIES, ROWS = S::I, COLUMNS = W / 16;
  static attention_tile tile(void) { return simt_tile(SUM, W); }
  forward_parts p;
  forward_sums<W> sums;

  __device__ inline void
  open(float *shared, const ring_shape &r, const ring_arrays<N> &x, const ring_target &t) {
    int64_t start = t.at.q_start + t.position * t.at.q_stride;
    p = forward_layout<W>(shared, r.a);
    forward_begin<W>(&sums);
    simt_load<N, W, S::QUERIES>(p.queries, x.q + start, t.at.q_stride, r.unit.T - t.first, r.a.D);
  }
  __device__ inline void leaf(
      const ring_shape &r, const uint64_t *key, const ring_arrays<N> &x, const ring_target &t,
      int64_t run, int64_t unit) {
    forward_begin<W>(&sums);
    forward_add<N, W>(
        &sums, p, ring_pair(r, t.unit, unit), ring_drop(r, key, t.at, t.unit, unit), t.first,
        simt_keys_of(t.at, x.k, x.v, run * r.unit.T));
  }
  __device__ inline int row(int i) const { return i * SIMT_SIDE + simt_y(); }
  __device__ inline int column(int c, const tsr_attention &a) const {
    return simt_column_in<W>(c, a.Dv);
  }
  __device__ inline bool leads() const { return simt_x() == 0; }
  __device__ inline float &at(int i, int c) { return sums.out[i][c]; }
  __device__ inline float &max(int i) { return sums.max[i]; }
  __device__ inline float &sum(int i) { return sums.sum[i]; }
};

template <typename T, int W> struct ring_dq {
  typedef T N;
  typedef backward_tile<W> S;
  static constexpr tsr_attention_sum SUM = TSR_ATTENTION_DQ;
  static constexpr int THREADS = SIMT_THREADS, OWN = S::QUERIES, ROWS = S::I, COLUMNS = W / 16;
  static attention_tile tile(void) { return simt_tile(SUM, W); }
  backward_parts p;
  dq_sums<W> sums;

  __device__ inline void
  open(float *shared, const ring_shape &r, const ring_arrays<N> &x, const ring_target &t) {
    int64_t start = t.at.q_start + t.position * t.at.q_stride, left = r.unit.T - t.first;
    p = backward_layout<W>(shared, r.a, false);
    simt_zero(sums.dq);
    simt_load<N, W, S::QUERIES>(p.queries, x.q + start, t.at.q_stride, left, r.a.D);
    simt_load<N, W, S::QUERIES>(
        p.douts, x.dout + t.at.o_start + t.position * t.at.o_stride, t.at.o_stride, left, r.a.Dv);
    attention_rows(p.rows, ring_statistics(r, x.rows, t.at, t.run), t.first, r.unit.T, S::QUERIES);
  }
  __device__ inline void leaf(
      const ring_shape &r, const uint64_t *key, const ring_arrays<N> &x, const ring_target &t,
      int64_t run, int64_t unit) {
    simt_zero(sums.dq);
    dq_add<N, W>(
        &sums, p, ring_pair(r, t.unit, unit), ring_drop(r, key, t.at, t.unit, unit), t.first,
        simt_keys_of(t.at, x.k, x.v, run * r.unit.T));
  }
  __device__ inline int row(int i) const { return i * SIMT_SIDE + simt_y(); }
  __device__ inline int column(int c, const tsr_attention &a) const {
    return simt_column_in<W>(c, a.D);
  }
  __device__ inline float &at(int i, int c) { return sums.dq[i][c]; }
};

/* Inside a unit the group's heads are added in their order. */
template <typename T, int W> struct ring_dkv {
  typedef T N;
  typedef backward_tile<W> S;
  static constexpr tsr_attention_sum SUM = TSR_ATTENTION_DKV;
  static constexpr int THREADS = SIMT_THREADS, OWN = S::KEYS, ROWS = S::J, COLUMNS = W / 8;
  static attention_tile tile(void) { return simt_tile(SUM, W); }
  backward_parts p;
  dkv_sums<W> sums;

  __device__ inline void
  open(float *shared, const ring_shape &r, const ring_arrays<N> &x, const ring_target &t) {
    int64_t from = t.at.k_start + t.position * t.at.k_stride, left = r.unit.T - t.first;
    p = backward_layout<W>(shared, r.a, true);
    simt_zero(sums.dk);
    simt_zero(sums.dv);
    simt_load<N, W, S::KEYS>(p.keys, x.k + from, t.at.k_stride, left, r.a.D);
    simt_load<N, W, S::KEYS>(
        p.values, x.v + t.at.v_start + t.position * t.at.v_stride, t.at.v_stride, left, r.a.Dv);
  }
  __device__ inline void leaf(
      const ring_shape &r, const uint64_t *key, const ring_arrays<N> &x, const ring_target &t,
      int64_t run, int64_t unit) {
    simt_zero(sums.dk);
    simt_zero(sums.dv);
    for (int64_t n = 0; n < r.a.H / r.a.G; n++) {
      attention_head at = attention_head_at(r.a, t.at.b, t.at.h + n);
      dkv_add<N, W>(
          &sums, p, ring_pair(r, unit, t.unit), ring_drop(r, key, at, unit, t.unit),
          ring_statistics(r, x.rows, at, run), t.first,
          simt_queries_of(at, x.q, x.dout, run * r.unit.T));
    }
  }
  __device__ inline int row(int i) const { return simt_y() * S::J + i; }
  __device__ inline int column(int c, const tsr_attention &a) const {
    if (c < W / 16) return simt_column_in<W>(c, a.D);
    int d = simt_column_in<W>(c - W / 16, a.Dv);
    return d < 0 ? d : (int)a.D + d;
  }
  __device__ inline float &at(int i, int c) {
    return c < W / 16 ? sums.dk[i][c % (W / 16)] : sums.dv[i][c % (W / 16)];
  }
};

/* ---- a step ---- */

template <template <typename, int> class PASS, typename N>
static void step_width(
    tsr_cuda_stream s, const tsr_attention_ring *r, const uint64_t *key, float *acc, void *scratch,
    const void *q, const void *k, const void *v, const void *dout, const float *rows) {
  ring_arrays<N> x = {(const N *)q, (const N *)k, (const N *)v, (const N *)dout, rows};
  int width = simt_width(&r->a);
  if (width == 64) ring_step<PASS<N, 64>>(s, r, key, acc, scratch, x);
  else if (width == 128) ring_step<PASS<N, 128>>(s, r, key, acc, scratch, x);
  else ring_step<PASS<N, 256>>(s, r, key, acc, scratch, x);
}

/* With tensor cores where they can; `dout` NULL for the pass of out. */
template <template <typename, int> class PASS>
static void step(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, tsr_attention_sum sum,
    const uint64_t *key, float *acc, void *scratch, const void *q, const void *k, const void *v,
    const void *dout, const float *rows) {
  const void *arrays[] = {q, k, v, dout};
  assert(r->members > 0 && r->units > 0 && r->length % r->units == 0 && r->a.H % r->a.G == 0);
  assert(r->units % r->members == 0 && r->a.T == r->length / r->members);
  if (r->a.B * r->a.T * r->a.H * r->a.D == 0) return;
  if (attention_ring_tensor_can(type, &r->a, arrays, 4)) {
    ring_arrays<uint16_t> x = {
        (const uint16_t *)q, (const uint16_t *)k, (const uint16_t *)v, (const uint16_t *)dout,
        rows};
    tsr_cuda_attention_ring_tensor(s, type, r, sum, key, acc, scratch, x);
  } else TSR_BY_TYPE(type, N, step_width<PASS, N>(s, r, key, acc, scratch, q, k, v, dout, rows))
}

extern "C" void tsr_cuda_attention_ring(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, const uint64_t *key,
    float *acc, const void *q, const void *k, const void *v, void *scratch) {
  step<ring_out>(s, type, r, TSR_ATTENTION_OUT, key, acc, scratch, q, k, v, NULL, NULL);
}

extern "C" void tsr_cuda_attention_ring_dq(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, const uint64_t *key,
    float *acc, const void *dout, const void *q, const void *k, const void *v, const float *rows,
    void *scratch) {
  step<ring_dq>(s, type, r, TSR_ATTENTION_DQ, key, acc, scratch, q, k, v, dout, rows);
}

extern "C" void tsr_cuda_attention_ring_dkv(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, const uint64_t *key,
    float *acc, const void *dout, const void *q, const float *rows, const void *k, const void *v,
    void *scratch) {
  step<ring_dkv>(s, type, r, TSR_ATTENTION_DKV, key, acc, scratch, q, k, v, dout, rows);
}

/* ---- before the backward passes ---- */

template <typename N>
static __global__ void __launch_bounds__(ATTENTION_DELTA_THREADS) ring_rows(
    tsr_attention a, float *rows, const N *dout, const N *out, const float *stats, bool packed) {
  int64_t row = attention_row_here();
  bool real = row < a.B * a.H * a.T;
  float delta = row_delta(a, row, real, dout, out, packed);
  if (!real || threadIdx.x % ATTENTION_ROW_LANES > 0) return;
  rows[3 * row] = stats[2 * row];
  rows[3 * row + 1] = stats[2 * row + 1];
  rows[3 * row + 2] = delta;
}

extern "C" void tsr_cuda_attention_ring_rows(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, float *rows,
    const void *dout, const void *out, const float *stats) {
  const tsr_attention a = attention_with_value_size(&r->a);
  int64_t n = a.B * a.H * a.T;
  if (n == 0) return;
  TSR_BY_TYPE(
      type, N,
      TSR_LAUNCH(
          ring_rows<N>, launch_attention_rows(n), s, a, rows, (const N *)dout, (const N *)out,
          stats, rows_are_packed<N>(a, dout, out)))
}

/* ---- the whole sums ---- */

/* One thread an element of a row (line, t): of out, beside the statistics, of dq, or of dk and dv.
 */
template <typename N, tsr_attention_sum SUM>
static __global__ void
ring_finish(const ring_shape r, int slot, int64_t n, N *first, N *second, float *stats) {
  int64_t heads = r.queries ? r.a.G : r.a.H, D = r.a.D, Dv = r.a.Dv;
  for (int64_t i = map_thread(); i < n; i += map_threads()) {
    int64_t d = i % r.sums, t = i / r.sums % r.a.T, line = i / r.sums / r.a.T;
    int64_t run = t / r.unit.T, in_unit = t % r.unit.T;
    int64_t to = (line / heads * r.a.T + t) * heads + line % heads;
    const float *row =
        r.acc + (((line * r.runs + run) * r.slots + slot) * r.unit.T + in_unit) * r.width;
    if constexpr (SUM == TSR_ATTENTION_OUT) {
      float kept = r.a.dropout != 0 ? attention_kept(r.a) : 1.0f, max = row[Dv], sum = row[Dv + 1];
      float shrunk = attention_sink(r.a, line % heads, &max, &sum);
      number_store(first + to * Dv + d, row[d] * (kept * shrunk / sum));
      if (d > 0) continue;
      stats[2 * (line * r.a.T + t)] = max;
      stats[2 * (line * r.a.T + t) + 1] = sum;
    } else if (d < D) number_store(first + to * D + d, row[d] * r.a.scale);
    else number_store(second + to * Dv + d - D, row[d]);
  }
}

template <tsr_attention_sum SUM>
static void finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *of, void *first, void *second,
    float *stats, const float *acc) {
  tsr_ring map;
  tsr_ring_pending whole;
  ring_shape r = ring_shape_of(of, SUM, &map);
  int64_t n = tsr_cuda_ring_size_of(of, SUM).lines * r.a.T * r.sums;
  tsr_ring_before(&map, of->members, &whole);
  r.acc = (float *)acc;
  if (n == 0) return;
  TSR_BY_TYPE(
      type, N,
      TSR_LAUNCH(
          (ring_finish<N, SUM>), launch_map(n), s, r, whole.parts[0].slot, n, (N *)first,
          (N *)second, stats))
}

extern "C" void tsr_cuda_attention_ring_finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, void *out, float *stats,
    const float *acc) {
  finish<TSR_ATTENTION_OUT>(s, type, r, out, NULL, stats, acc);
}

extern "C" void tsr_cuda_attention_ring_dq_finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, void *dq,
    const float *acc) {
  finish<TSR_ATTENTION_DQ>(s, type, r, dq, NULL, NULL, acc);
}

extern "C" void tsr_cuda_attention_ring_dkv_finish(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, void *dk, void *dv,
    const float *acc) {
  finish<TSR_ATTENTION_DKV>(s, type, r, dk, dv, NULL, acc);
}
