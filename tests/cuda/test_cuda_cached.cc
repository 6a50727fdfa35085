// SPDX-License-Identifier: Apache-2.0
/* Generation with a cache: rows that positions and counts choose, and attention of new tokens. What
 * comes out for a token is the same in chunks of any size, and whatever is beside it. */
#include "cuda_check.h"
#include <algorithm>

/* ---- pages: in any order, and one that no sequence has ---- */

struct page_table {
  int64_t page, each, count;
  integers of; /* (B, each) */
  int64_t rows() const { return count * page; }
  int64_t row(int64_t b, int64_t position) const {
    return of[(size_t)(b * each + position / page)] * page + position % page;
  }
};

static page_table page_table_new(int64_t B, int64_t T) {
  page_table p;
  p.page = 16 * (1 + (int64_t)(check_random() % 3));
  p.each = (T + p.page - 1) / p.page;
  p.count = B * p.each + 1;
  for (int64_t i = 0; i < p.count; i++) {
    p.of.push_back((int32_t)i);
    std::swap(p.of[(size_t)i], p.of[check_random() % (uint64_t)(i + 1)]);
  }
  return p;
}

/* ---- rows ---- */

struct row_case {
  int64_t B, C, T, width; /* sequences, new tokens, the cache's positions or the table's rows */
  integers positions, counts;
};

/* Sequences with nothing new, with more than there is room for, and others. */
static row_case row_case_new(int64_t B, int64_t C, int64_t T, int64_t width) {
  row_case r = {B, C, T, width, integers((size_t)B), integers((size_t)B)};
  for (size_t b = 0; b < r.positions.size(); b++) {
    r.positions[b] = (int32_t)(check_random() % (uint64_t)T);
    r.counts[b] = (int32_t)(check_random() % (uint64_t)(C + 1));
    if (b == 1) r.positions[b] = (int32_t)T - 1, r.counts[b] = (int32_t)C;
    if (b == 2) r.positions[b] = 0, r.counts[b] = 0;
  }
  return r;
}

static void
row_copy(numbers &to, int64_t to_row, const numbers &from, int64_t from_row, int64_t width) {
  std::copy_n(&from[(size_t)(from_row * width)], width, &to[(size_t)(to_row * width)]);
}

static void check_keep(tsr_cuda_type type, const row_case &r) {
  int64_t bytes = r.width * (int64_t)type_bytes(type);
  numbers x = rounded(type, random_numbers(r.B * r.C * r.width, 3));
  page_table p = page_table_new(r.B, r.T);
  numbers kept = rounded(type, random_numbers(p.rows() * r.width, 3)), want = kept;
  for (int64_t b = 0; b < r.B; b++)
    for (int64_t i = 0; i < r.counts[(size_t)b]; i++) {
      int64_t at = r.positions[(size_t)b] + i;
      if (at < p.each * p.page) row_copy(want, p.row(b, at), x, b * r.C + i, r.width);
    }
  auto got = run_all("keep", [&](call_arrays &c) {
    void *out = c.changed(type, kept), *in = c.in(type, x);
    int32_t *positions = c.in(r.positions), *counts = c.in(r.counts);
    tsr_cuda_pages pages = {c.in(p.of), p.page, p.each};
    tsr_cuda_kv_cache_append(NULL, out, in, positions, counts, &pages, bytes, r.B, r.C);
  });
  check_same("keep", got[0], want);
}

static void check_gather_rows(tsr_cuda_type type, const row_case &r, int64_t first) {
  int64_t bytes = r.width * (int64_t)type_bytes(type), rows = r.T + first;
  numbers table = rounded(type, random_numbers(rows * r.width, 3));
  numbers want((size_t)(r.B * r.C * r.width));
  for (int64_t row = 0; row < r.B * r.C; row++) {
    int64_t at = first + r.positions[(size_t)(row / r.C)] + row % r.C;
    row_copy(want, row, table, std::min(at, rows - 1), r.width);
  }
  auto got = run_all("rows_at", [&](call_arrays &c) {
    void *out = c.out(type, (int64_t)want.size()), *in = c.in(type, table);
    tsr_cuda_gather_rows(NULL, out, in, c.in(r.positions), bytes, r.B, r.C, rows, first);
  });
  check_same("rows_at", got[0], want);
}

static void check_slice_last(tsr_cuda_type type, const row_case &r) {
  int64_t bytes = r.width * (int64_t)type_bytes(type);
  numbers x = rounded(type, random_numbers(r.B * r.C * r.width, 3));
  numbers want((size_t)(r.B * r.width));
  for (int64_t b = 0; b < r.B; b++)
    row_copy(want, b, x, b * r.C + std::max(r.counts[(size_t)b] - 1, 0), r.width);
  auto got = run_all("take_last", [&](call_arrays &c) {
    void *out = c.out(type, r.B * r.width), *in = c.in(type, x);
    tsr_cuda_slice_last(NULL, out, in, c.in(r.counts), bytes, r.B, r.C);
  });
  check_same("take_last", got[0], want);
}

/* Tokens behind the table's end take its last row. */
static void check_rope(tsr_cuda_type type, const row_case &r, int64_t D, float sign) {
  int64_t H = 3, width = H * D, n = r.B * r.C * width;
  numbers x = rounded(type, random_numbers(n, 3)), table((size_t)(r.T * D)), want((size_t)n);
  tsr_rope_scaling none = {};
  cpu->rope_table(table.data(), r.T, D, 0, 10000, &none);
  for (int64_t row = 0; row < r.B * r.C; row++) {
    int64_t at = std::min(r.positions[(size_t)(row / r.C)] + row % r.C, r.T - 1);
    tsr_rope one = {1, H, D, D, 0, false, sign};
    cpu->rope(
        &one, &want[(size_t)(row * width)], &x[(size_t)(row * width)], &table[(size_t)(at * D)], 0,
        1);
  }
  auto got = run_all("rope_cached", [&](call_arrays &c) {
    void *out = c.out(type, n), *in = c.in(type, x);
    float *turns = c.in(table);
    tsr_rope of = {r.C, H, D, D, 0, false, sign};
    tsr_cuda_rope_cached(NULL, type, out, in, turns, c.in(r.positions), r.T, r.B, &of);
  });
  check_near("rope_cached", type, got[0], want);
}

static void test_rows(tsr_cuda_type type) {
  const int64_t widths[] = {1, 31, 33, 257, 1000, 64}, chunks[] = {1, 3, 8};
  for (int64_t width : widths)
    for (int64_t C : chunks) {
      row_case r = row_case_new(width % 5 + 1, C, 13, width);
      check_keep(type, r);
      check_gather_rows(type, r, width % 3);
      check_slice_last(type, r);
      if (width % 2 == 0 && width < 100) check_rope(type, r, width, C == 3 ? -1.0f : 1.0f);
    }
  check_rope(type, row_case_new(4, 5, 9, 6), 6, 1);
  check_rope(type, row_case_new(2, 1, 9, 70), 70, 1);
}

/* ---- attention ---- */

/* Whole sequences: q (B,T,H,D), keys (B,T,G,D) and values (B,T,G,Dv). */
struct attention_case {
  tsr_cuda_type type;
  int64_t B, H, G, D, Dv, T, window;
  float soft_cap;
  numbers q, k, v;
  numbers sinks; /* (H); empty: none */
};

static attention_case attention_case_new(
    tsr_cuda_type type, int64_t B, int64_t H, int64_t G, int64_t D, int64_t T, int64_t window = 0,
    float soft_cap = 0, int64_t Dv = 0) {
  if (!Dv) Dv = D;
  attention_case x = {type, B, H, G, D, Dv, T, window, soft_cap, {}, {}, {}, {}};
  x.q = rounded(type, random_numbers(B * T * H * D, 2));
  x.k = rounded(type, random_numbers(B * T * G * D, 2));
  x.v = rounded(type, random_numbers(B * T * G * Dv, 1));
  return x;
}

static tsr_attention sizes_of(const attention_case &x, int64_t T) {
  tsr_attention a = {};
  a.B = x.B, a.T = T, a.H = x.H, a.G = x.G, a.D = x.D, a.Dv = x.Dv;
  a.causal = true;
  a.window = x.window;
  a.soft_cap = x.soft_cap;
  a.scale = 1 / sqrtf((float)x.D);
  return a;
}

/* Where a chunk's tokens stand; and what it is given: numbers of what is not real are none. */
struct chunk {
  int64_t C;
  integers positions, counts;
  numbers q, k, v; /* k and v: pools */
  page_table pages;
};

static void chunk_fill(const attention_case &x, chunk *c) {
  int64_t wide = x.H * x.D, narrow = x.G * x.D, of_values = x.G * x.Dv;
  c->q = numbers((size_t)(x.B * c->C * wide), NAN);
  c->pages = page_table_new(x.B, x.T);
  c->k = numbers((size_t)(c->pages.rows() * narrow), NAN);
  c->v = numbers((size_t)(c->pages.rows() * of_values), NAN);
  for (int64_t b = 0; b < x.B; b++) {
    int64_t first = c->positions[(size_t)b], count = c->counts[(size_t)b], start = b * x.T;
    if (count)
      std::copy_n(
          &x.q[(size_t)((start + first) * wide)], count * wide, &c->q[(size_t)(b * c->C * wide)]);
    for (int64_t at = 0; at < first + count; at++) {
      row_copy(c->k, c->pages.row(b, at), x.k, start + at, narrow);
      row_copy(c->v, c->pages.row(b, at), x.v, start + at, of_values);
    }
  }
}

static void chunk_run(const attention_case &x, const chunk &c, call_arrays &arrays) {
  int32_t *positions = arrays.in(c.positions), *counts = arrays.in(c.counts);
  const page_table &p = c.pages;
  tsr_attention_cached a = {sizes_of(x, c.C), p.page, p.each, positions, counts, arrays.in(p.of)};
  void *q = arrays.in(x.type, c.q), *k = arrays.in(x.type, c.k), *v = arrays.in(x.type, c.v);
  if (!x.sinks.empty()) a.a.sinks = arrays.in(x.sinks);
  void *out = arrays.out(x.type, x.B * c.C * x.H * x.Dv);
  tsr_cuda_attention_cached(NULL, x.type, &a, out, q, k, v);
}

static numbers chunk_expected(const attention_case &x, const chunk &c) {
  const page_table &p = c.pages;
  tsr_attention_cached a = {sizes_of(x, c.C),   p.page,          p.each,
                            c.positions.data(), c.counts.data(), p.of.data()};
  if (!x.sinks.empty()) a.a.sinks = x.sinks.data();
  numbers want((size_t)(x.B * c.C * x.H * x.Dv));
  std::vector<char> scratch((size_t)cpu->attention_cached_scratch(&a));
  cpu->attention_cached(
      &a, want.data(), c.q.data(), c.k.data(), c.v.data(), scratch.data(), 0, x.B * x.G);
  return want;
}

/* Of x (B,T,heads*D) what one sequence and some heads have. */
static numbers split(
    const numbers &x, const attention_case &of, int64_t heads, int64_t b, int64_t first,
    int64_t count, int64_t D) {
  numbers y;
  for (int64_t t = 0; t < of.T; t++) {
    numbers row = part(x, ((b * of.T + t) * heads + first) * D, count * D);
    y.insert(y.end(), row.begin(), row.end());
  }
  return y;
}

/* One group of heads of one sequence, one token after the other (T,group*Dv); a position's number
 * is made when it is first wanted. */
struct single {
  attention_case x;
  std::vector<numbers> of_position;
};

static single single_new(const attention_case &x, int64_t b, int64_t g) {
  int64_t heads = x.H / x.G;
  single s = {
      {x.type, 1, heads, 1, x.D, x.Dv, x.T, x.window, x.soft_cap, {}, {}, {}, {}},
      std::vector<numbers>((size_t)x.T)};
  s.x.q = split(x.q, x, x.H, b, g * heads, heads, x.D);
  s.x.k = split(x.k, x, x.G, b, g, 1, x.D);
  s.x.v = split(x.v, x, x.G, b, g, 1, x.Dv);
  if (!x.sinks.empty()) s.x.sinks = part(x.sinks, g * heads, heads);
  return s;
}

static const numbers &single_at(single *s, int64_t position) {
  numbers &kept = s->of_position[(size_t)position];
  if (!kept.empty()) return kept;
  chunk c = {1, {(int32_t)position}, {1}, {}, {}, {}, {}};
  chunk_fill(s->x, &c);
  call_arrays arrays;
  arrays.shift = 0;
  chunk_run(s->x, c, arrays);
  finish_work();
  const array &out = arrays.all.back();
  CHECK(array_intact(&out));
  return kept = numbers_get(out.type, out.data, out.n);
}

/* Every token of a chunk beside what it is alone; and what is not real is 0. */
static void check_tokens(
    const attention_case &x, const chunk &c, const numbers &got, std::vector<single> &alone) {
  int64_t heads = x.H / x.G;
  for (int64_t b = 0; b < x.B; b++)
    for (int64_t i = 0; i < c.C; i++)
      for (int64_t g = 0; g < x.G; g++) {
        bool real = i < c.counts[(size_t)b];
        numbers token = part(got, ((b * c.C + i) * x.H + g * heads) * x.Dv, heads * x.Dv);
        numbers want = real ? single_at(&alone[(size_t)(b * x.G + g)], c.positions[(size_t)b] + i)
                            : numbers(token.size(), 0.0f);
        check_same(real ? "a token in a chunk, and alone" : "no token", token, want);
      }
}

/* What the whole sequence gives: other bits, because its keys are added up tile by tile. */
static void
check_whole(const attention_case &x, const chunk &c, const numbers &got, const numbers &whole) {
  numbers some, same;
  int64_t wide = x.H * x.Dv;
  for (int64_t b = 0; b < x.B; b++) {
    int64_t n = c.counts[(size_t)b] * wide;
    numbers a = part(got, b * c.C * wide, n);
    numbers w = part(whole, (b * x.T + c.positions[(size_t)b]) * wide, n);
    some.insert(some.end(), a.begin(), a.end());
    same.insert(same.end(), w.begin(), w.end());
  }
  if (!some.empty()) check_near("with a cache and without", x.type, some, same);
}

static numbers whole_of(const attention_case &x) {
  call_arrays arrays;
  arrays.shift = 0;
  tsr_attention a = sizes_of(x, x.T);
  const int64_t n = x.B * x.T * x.H * x.Dv;
  void *out = arrays.out(x.type, n);
  float *stats = arrays.out(x.B * x.H * x.T * 2);
  void *q = arrays.in(x.type, x.q), *k = arrays.in(x.type, x.k), *v = arrays.in(x.type, x.v);
  if (!x.sinks.empty()) a.sinks = arrays.in(x.sinks);
  tsr_cuda_attention(NULL, x.type, &a, NULL, out, stats, q, k, v);
  finish_work();
  return numbers_get(x.type, out, n);
}

static void check_attention(const attention_case &x) {
  const int64_t chunks[] = {1, 3, 8};
  std::vector<single> alone;
  for (int64_t i = 0; i < x.B * x.G; i++) alone.push_back(single_new(x, i / x.G, i % x.G));
  numbers whole; /* none of a long one: the emulator would take a minute */
  if (x.T <= 1000) whole = whole_of(x);
  for (int64_t C : chunks) {
    chunk c = {C, integers((size_t)x.B), integers((size_t)x.B), {}, {}, {}, {}};
    for (size_t b = 0; b < c.positions.size(); b++) {
      int64_t room = x.T - C > 0 ? x.T - C : 0;
      c.positions[b] = (int32_t)(b ? check_random() % (uint64_t)(room + 1) : (uint64_t)room);
      c.counts[b] = (int32_t)std::min(
          b ? check_random() % (uint64_t)(C + 1) : (uint64_t)C, (uint64_t)(x.T - c.positions[b]));
    }
    chunk_fill(x, &c);
    auto got = run_all("attention_cached", [&](call_arrays &arrays) { chunk_run(x, c, arrays); });
    check_near("attention_cached", x.type, got[0], chunk_expected(x, c));
    check_tokens(x, c, got[0], alone);
    if (!whole.empty()) check_whole(x, c, got[0], whole);
  }
}

static void test_attention(tsr_cuda_type type) {
  check_attention(attention_case_new(type, 1, 1, 1, 1, 5));
  check_attention(attention_case_new(type, 2, 6, 2, 31, 33));
  check_attention(attention_case_new(type, 3, 4, 2, 64, 65));
  check_attention(attention_case_new(type, 2, 5, 1, 40, 257)); /* heads in two blocks */
  check_attention(attention_case_new(type, 1, 2, 2, 128, 200));
  check_attention(attention_case_new(type, 2, 4, 2, 24, 90, 0, 0, 16));
  if (type == TSR_CUDA_F32) {
    check_attention(attention_case_new(type, 1, 1, 1, 64, 1000));
    check_attention(attention_case_new(type, 2, 2, 1, 64, 700));
    check_attention(attention_case_new(type, 1, 5, 1, 33, 150));
    check_attention(attention_case_new(type, 2, 4, 2, 16, 90, 1));
    check_attention(attention_case_new(type, 1, 3, 1, 40, 260, 67));
    check_attention(attention_case_new(type, 2, 4, 2, 16, 90, 33, 1.5f));
    check_attention(attention_case_new(type, 1, 3, 1, 5, 70, 20, 0, 100));
  }
  if (type == TSR_CUDA_BF16) {
    check_attention(attention_case_new(type, 2, 2, 2, 128, 1400));
    check_attention(attention_case_new(type, 1, 2, 2, 192, 300, 0, 0, 128));
    check_attention(attention_case_new(type, 1, 2, 1, 64, 1200, 130));
  }
  if (type == TSR_CUDA_F16) check_attention(attention_case_new(type, 1, 3, 1, 256, 90));
  attention_case x = attention_case_new(type, 2, 4, 2, 64, 90, 33);
  x.sinks = {0.3f, 95, -120, 1.7f};
  check_attention(x);
}

int main(void) {
  for (tsr_cuda_type type : types) {
    test_rows(type);
    test_attention(type);
  }
  return check_done("cuda.cached");
}
