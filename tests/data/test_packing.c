// SPDX-License-Identifier: Apache-2.0
/* Packing: against a search over all packs for each document, and samples written by hand. */
#include "base/text.h"
#include "data/window.h"
#include "tests/check.h"
#include "tests/data/letters.h"
#include "tests/data/scratch.h"

enum { DOCUMENTS_MAX = 400, T_MAX = 97 };

static tsr_arena *arena;
static tsr_diags *diags;

/* ---- best fit, by definition ---- */

typedef struct {
  int64_t room, changed; /* when it received its last document */
  int64_t members[DOCUMENTS_MAX];
  int count;
} plain_pack;

static plain_pack plain[DOCUMENTS_MAX];

/* The documents by falling length, the first of one length first. */
static int sort_plainly(const tsr_packs *p, int64_t *sorted) {
  int count = 0;
  for (int64_t length = p->sequence; length > 0; length--)
    for (int64_t d = p->first; d < p->end; d++) {
      bool dropped = p->rule.drops && tsr_document_length(p->from, d) > p->sequence;
      int64_t kept = tsr_document_length(p->from, d), targets = 0;
      if (kept > p->sequence) kept = p->sequence;
      for (int64_t t = 1; t < kept; t++)
        targets += tsr_document_trains(p->from, p->from->begins[d] + t);
      if (kept == length && targets && !dropped) sorted[count++] = d;
    }
  return count;
}

static int pack_plainly(const tsr_packs *p) {
  int64_t sorted[DOCUMENTS_MAX];
  int packs = 0, count = sort_plainly(p, sorted);
  for (int i = 0; i < count; i++) {
    int64_t length = tsr_pack_length(p, sorted[i]);
    plain_pack *best = NULL;
    for (int k = 0; k < packs; k++) {
      plain_pack *one = &plain[k];
      if (one->room < length) continue;
      bool better = !best || one->room < best->room ||
                    (one->room == best->room && one->changed > best->changed);
      if (better) best = one;
    }
    if (!best) {
      best = &plain[packs++];
      *best = (plain_pack){.room = p->sequence};
    }
    best->members[best->count++] = sorted[i];
    best->room -= length;
    best->changed = i;
  }
  return packs;
}

static void check_packs(const tsr_packs *p) {
  int packs = pack_plainly(p);
  int64_t tokens = 0, targets = 0;
  bool same = p->count == packs;
  for (int k = 0; k < packs && same; k++) {
    same = p->begins[k + 1] - p->begins[k] == plain[k].count;
    for (int i = 0; i < plain[k].count && same; i++)
      same = p->members[p->begins[k] + i] == plain[k].members[i];
    same = same && tsr_pack_tokens(p, k) == p->sequence - plain[k].room;
    tokens += p->sequence - plain[k].room;
    tsr_window w = {.packs = p, .pack = k};
    targets += tsr_window_fill_targets(&w, p->sequence, TSR_TARGET_IGNORED, NULL);
  }
  CHECK(same);
  CHECK_INT(p->tokens, tokens);
  CHECK_INT(p->targets, targets);
}

static uint64_t state = 1;
static int64_t draw(int64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)below);
}

static void draw_conversations(int64_t count, int64_t longest, tsr_masked_documents *ret) {
  int64_t *begins = tsr_arena_array(arena, int64_t, count + 1);
  int32_t *tokens = tsr_arena_array(arena, int32_t, count * longest + 1);
  uint8_t *trained = tsr_arena_array(arena, uint8_t, count * longest / 8 + 1);
  for (int64_t d = 0; d < count; d++) begins[d + 1] = begins[d] + draw(longest + 1);
  for (int64_t i = 0; i < begins[count]; i++) {
    tokens[i] = (int32_t)draw(1000);
    trained[i / 8] |= (uint8_t)((draw(4) == 0) << i % 8);
  }
  *ret = (tsr_masked_documents){count, begins, tokens, trained, NULL, NULL};
}

static void test_against_search(void) {
  for (int i = 0; i < 300; i++) {
    int64_t T = 1 + draw(T_MAX), longest = 1 + draw(i % 3 ? T : 2 * T);
    int64_t count = draw(i % 10 ? 40 : DOCUMENTS_MAX), first = draw(count + 1);
    tsr_masked_documents c;
    tsr_packs p;
    draw_conversations(count, longest, &c);
    tsr_packing_rule rule = {.best_fit = true, .drops = i % 2};
    tsr_packs_make(arena, &c, first, count, &rule, T, &p);
    check_packs(&p);
  }
}

/* A part that is large makes no more than log(T) steps for each document. */
static void test_large(void) {
  enum { MANY = 1000000, LONGEST = 100, T = 2048 };
  tsr_masked_documents c;
  tsr_packs p;
  draw_conversations(MANY, LONGEST, &c);
  tsr_packs_make(arena, &c, 0, MANY, &(tsr_packing_rule){.best_fit = true}, T, &p);
  CHECK((double)p.tokens / ((double)p.count * T) > 0.9999);
  CHECK_INT(p.untrained + p.begins[p.count], MANY);
}

/* ---- samples ---- */

static void check_sample(
    const tsr_packs *p, int64_t pack, const int32_t *tokens, const int32_t *targets,
    const int32_t *positions) {
  int32_t got[16];
  int64_t T = p->sequence, want = 0;
  tsr_window w = {.packs = p, .pack = pack, .separate = true};
  tsr_window_fill_tokens(&w, T, got);
  for (int64_t t = 0; t < T; t++) CHECK_INT(got[t], tokens[t]);
  for (int64_t t = 0; t < T; t++) want += targets[t] >= 0;
  CHECK_INT(tsr_window_fill_targets(&w, T, TSR_TARGET_IGNORED, got), want);
  for (int64_t t = 0; t < T; t++) CHECK_INT(got[t], targets[t]);
  tsr_window_fill_positions(&w, T, got);
  for (int64_t t = 0; t < T; t++) CHECK_INT(got[t], positions[t]);
}

enum { NO = TSR_TARGET_IGNORED };

/* Documents of 3, 12, 4, 2 and 3 tokens, the last without a target: its first token has none. */
static const char lines[] = "abC\nabcDefghijkL\ndEfG\nhI\nJkl\n";

static void test_samples(void) {
  tsr_masked_documents c;
  tsr_packs p;
  CHECK(read_letters(arena, lines, 1, 0, &c, diags));
  tsr_packing_rule rule = {.best_fit = true, .padding = 26};
  tsr_packs_make(arena, &c, 0, c.count, &rule, 8, &p);
  CHECK_INT(p.count, 3);
  for (int d = 0; d < 5; d++) CHECK_INT(c.places[d].line, d + 1);
  CHECK_STR(c.paths[c.places[4].file], "lines.jsonl");
  check_sample(
      &p, 0, (int32_t[]){1, 2, 3, 4, 5, 6, 7, 8}, (int32_t[]){NO, NO, 4, NO, NO, NO, NO, NO},
      (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7});
  check_sample(
      &p, 1, (int32_t[]){4, 5, 6, 7, 1, 2, 3, 26}, (int32_t[]){5, NO, 7, NO, NO, 3, NO, NO},
      (int32_t[]){0, 1, 2, 3, 0, 1, 2, 0});
  check_sample(
      &p, 2, (int32_t[]){8, 9, 26, 26, 26, 26, 26, 26}, (int32_t[]){9, NO, NO, NO, NO, NO, NO, NO},
      (int32_t[]){0, 1, 0, 0, 0, 0, 0, 0});
  CHECK(p.truncated == 1 && p.dropped == 0 && p.untrained == 1);
  CHECK(p.tokens == 8 + 7 + 2 && p.targets == 1 + 3 + 1);
  tsr_window w = {.packs = &p, .pack = 1};
  CHECK_INT(tsr_window_fill_targets(&w, 8, 7, NULL), 2); /* ignore_index: 7 */
  CHECK(tsr_window_tokens(&w, 8) == 7);

  rule.drops = true;
  tsr_packs_make(arena, &c, 0, c.count, &rule, 8, &p);
  CHECK(p.count == 2 && p.truncated == 0 && p.dropped == 1 && p.untrained == 1);
  rule.best_fit = false;
  tsr_packs_make(arena, &c, 0, c.count, &rule, 8, &p);
  CHECK_INT(p.count, 3); /* in the order of the lines */
  check_sample(
      &p, 0, (int32_t[]){1, 2, 3, 26, 26, 26, 26, 26}, (int32_t[]){NO, 3, NO, NO, NO, NO, NO, NO},
      (int32_t[]){0, 1, 2, 0, 0, 0, 0, 0});
  tsr_packs_make(arena, &c, 4, 5, &rule, 8, &p);
  CHECK(p.count == 0 && p.untrained == 1);
  tsr_packs_make(arena, &c, 0, 1, &rule, 2, &p); /* of "abC" nothing trained is left */
  CHECK(p.count == 0 && p.dropped == 1);
}

/* ---- lines ---- */

static bool same(const tsr_masked_documents *a, const tsr_masked_documents *b) {
  int64_t tokens = a->begins[a->count];
  return a->count == b->count &&
         !memcmp(a->begins, b->begins, sizeof *a->begins * (size_t)(a->count + 1)) &&
         !memcmp(a->places, b->places, sizeof *a->places * (size_t)a->count) &&
         !memcmp(a->tokens, b->tokens, sizeof *a->tokens * (size_t)tokens) &&
         !memcmp(a->trained, b->trained, (size_t)(tokens + 7) / 8);
}

static void test_blocks(void) {
  static char text[20000];
  size_t length = 0;
  tsr_masked_documents one, many;
  while (length < sizeof text - 40) {
    for (int64_t n = draw(30); n >= 0; n--)
      text[length++] = (char)((draw(2) ? 'a' : 'A') + draw(26));
    length += (size_t)sprintf(text + length, "%s", draw(5) ? "\n" : "\n  \t\n");
  }
  text[--length] = 0; /* the last line has no end */
  CHECK(read_letters(arena, text, 1, sizeof text, &one, diags));
  CHECK(one.count > 500);
  for (int threads = 0; threads < 6; threads++)
    for (size_t bytes = 1; bytes < 5000; bytes = 3 * bytes + 1) {
      CHECK(read_letters(arena, text, threads, bytes, &many, diags));
      CHECK(same(&one, &many));
    }
  CHECK(read_letters(arena, "\n \n", 2, 0, &many, diags));
  CHECK_INT(many.count, 0);
}

static void test_bad_lines(void) {
  tsr_text text = {0}, want = {0};
  tsr_masked_documents c;
  for (int i = 2; i <= 60; i += 2) tsr_text_add(&text, "good\n%*sbad!\n", i % 3, "");
  for (int i = 2; i <= 40; i += 2) {
    tsr_text_add(&want, "lines.jsonl:%d:%d: error: no letter\n", i, i % 3 + 4);
    tsr_text_add(&want, "%5d | %*sbad!\n      | %*s^\n", i, i % 3, "", i % 3 + 3, "");
  }
  tsr_text_add(&want, "      = no more than 20 bad lines are reported\n");
  for (int threads = 1; threads < 5; threads++) {
    CHECK(!read_letters(arena, text.data, threads, 7, &c, diags));
    CHECK_STR(scratch_diags(diags), want.data);
  }
  tsr_text_free(&text);
  tsr_text_free(&want);
}

int main(void) {
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  test_against_search();
  test_large();
  test_samples();
  test_blocks();
  test_bad_lines();
  tsr_arena_free(arena);
  return check_done("packing");
}
