// SPDX-License-Identifier: Apache-2.0
/* The manifest: what is printed is read again as it was, and each of its checks says what is wrong.
 */
#include "../data/scratch.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "made.h"
#include "tests/check.h"

static uint64_t random_state = 9;

static int64_t draw(int64_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)(random_state >> 33) % below;
}

/* ---- round trips ---- */

static const char *text_of(tsr_arena *arena) {
  static const char *const words[] = {"a", "Ω", "\"", "\\", "\n", "/", " ", "😀", "\x01", "0"};
  const char *text = "";
  for (int64_t n = draw(6); n >= 0; n--)
    text = tsr_arena_printf(arena, "%s%s", text, words[draw(10)]);
  return text;
}

static void hash_of(char ret_hash[TSR_HASH_TEXT]) {
  int64_t seed = draw(1 << 30);
  tsr_hash_text(&seed, sizeof seed, ret_hash);
}

static void make_state(tsr_run_state *s) {
  *s = (tsr_run_state){.step = draw(1000), .updates = draw(900), .samples = draw(1 << 30)};
  s->samples *= draw(1 << 20);
  s->seed = (uint64_t)draw(1 << 30) * 0x123456789abu;
  s->loss = draw(4) ? (double)((float)draw(10000) / 777) : NAN;
  s->has_scale = draw(2);
  s->scale = s->has_scale ? (float)(1 << draw(20)) : 0;
  s->scale_good_steps = s->has_scale ? draw(2000) : 0;
  tsr_validation_state *v = &s->validation;
  for (v->best_count = 0; v->best_count < draw(TSR_BEST_MAX + 1); v->best_count++)
    v->best[v->best_count] = (tsr_evaluated_step){1 + draw(1000), (double)draw(1 << 30) / 3};
  if (draw(2)) v->improved = (tsr_evaluated_step){1 + draw(1000), (double)draw(1 << 30) / 7};
  v->stale = draw(3);
}

static void make_files(tsr_arena *arena, tsr_manifest *m) {
  m->files_count = 1 + (int)draw(4);
  m->files = tsr_arena_array(arena, tsr_stored_file, m->files_count);
  for (int i = 0; i < m->files_count; i++) {
    tsr_stored_file *f = &m->files[i];
    f->name = tsr_arena_printf(arena, "file-%d%s", i, draw(2) ? " ü\"" : "");
    f->bytes = f->header = draw(5000);
    hash_of(f->hash);
  }
}

/* Cut along one dimension; each piece behind what its file has so far. */
static void make_tensor(tsr_arena *arena, tsr_manifest *m, tsr_stored *t, int number) {
  t->name = tsr_arena_printf(arena, "%s.%d", text_of(arena), number);
  t->dtype = (tsr_dtype)draw(TSR_F16 + 1);
  t->ndim = 1 + (int)draw(TSR_DIMS_MAX);
  for (int d = 0; d < t->ndim; d++) t->shape[d] = 1 + draw(6);
  int split = (int)draw(t->ndim);
  t->pieces = tsr_arena_array(arena, tsr_stored_piece, t->shape[split]);
  for (int64_t at = 0; at < t->shape[split];) {
    tsr_stored_piece *p = &t->pieces[t->pieces_count++];
    int64_t count = 1 + draw(t->shape[split] - at);
    memcpy(p->shape, t->shape, sizeof p->shape);
    p->begin[split] = at;
    p->shape[split] = count;
    p->file = (int)draw(m->files_count);
    p->offset = m->files[p->file].bytes;
    p->bytes = tsr_stored_elements(t->ndim, p->shape) * tsr_dtype_bytes(t->dtype);
    m->files[p->file].bytes += p->bytes;
    hash_of(p->hash);
    at += count;
  }
}

static void make_manifest(tsr_arena *arena, tsr_manifest *m) {
  *m = (tsr_manifest){.folder = "folder", .has_state = draw(2), .time = draw(1 << 30)};
  make_state(&m->state);
  make_files(arena, m);
  if (draw(2)) m->mesh = text_of(arena);
  if (draw(2)) m->isa = text_of(arena);
  if (draw(2)) m->version = text_of(arena);
  if (draw(2)) m->config = m->files[draw(m->files_count)].name;
  if (draw(2)) m->tokenizer = m->files[draw(m->files_count)].name;
  m->recipe_count = (int)draw(5);
  m->recipe = tsr_arena_array(arena, tsr_recipe_entry, m->recipe_count + 1);
  for (int i = 0; i < m->recipe_count; i++)
    m->recipe[i] = (tsr_recipe_entry){tsr_arena_printf(arena, "key.%d", i), text_of(arena)};
  m->tensors_count = (int)draw(7);
  m->tensors = tsr_arena_array(arena, tsr_stored, m->tensors_count + 1);
  for (int i = 0; i < m->tensors_count; i++) make_tensor(arena, m, &m->tensors[i], i);
}

static bool same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static void compare_about(const tsr_manifest *a, const tsr_manifest *b) {
  const tsr_run_state *x = &a->state, *y = &b->state;
  CHECK(x->step == y->step && x->updates == y->updates && x->samples == y->samples);
  CHECK(x->seed == y->seed && x->has_scale == y->has_scale && x->scale == y->scale);
  CHECK(x->scale_good_steps == y->scale_good_steps);
  CHECK((float)x->loss == (float)y->loss || (isnan(x->loss) && isnan(y->loss)));
  CHECK(!memcmp(&x->validation, &y->validation, sizeof x->validation));
  CHECK(a->has_state == b->has_state && a->time == b->time);
  CHECK(same_text(a->mesh, b->mesh) && same_text(a->isa, b->isa));
  CHECK(same_text(a->version, b->version) && same_text(a->config, b->config));
  CHECK(same_text(a->tokenizer, b->tokenizer) && same_text(a->folder, b->folder));
  CHECK_INT(a->recipe_count, b->recipe_count);
  for (int i = 0; i < a->recipe_count; i++) {
    CHECK_STR(b->recipe[i].key, a->recipe[i].key);
    CHECK_STR(tsr_recipe_value(b, a->recipe[i].key), a->recipe[i].value);
  }
}

static void compare_tensors(const tsr_manifest *a, const tsr_manifest *b) {
  CHECK_INT(b->files_count, a->files_count);
  for (int i = 0; i < a->files_count; i++) {
    const tsr_stored_file *x = &a->files[i], *y = &b->files[i];
    CHECK(x->bytes == y->bytes && x->header == y->header && !strcmp(x->hash, y->hash));
    CHECK_STR(y->name, x->name);
  }
  CHECK_INT(tsr_manifest_bytes(b), tsr_manifest_bytes(a));
  CHECK_INT(b->tensors_count, a->tensors_count);
  for (int i = 0; i < a->tensors_count; i++) {
    const tsr_stored *x = &a->tensors[i], *y = tsr_manifest_find(b, x->name);
    CHECK(y == &b->tensors[i] && x->dtype == y->dtype && x->ndim == y->ndim);
    CHECK(y && !memcmp(x->shape, y->shape, sizeof x->shape) && x->pieces_count == y->pieces_count);
    for (int k = 0; k < x->pieces_count; k++) {
      const tsr_stored_piece *p = &x->pieces[k], *q = &y->pieces[k];
      CHECK(p->file == q->file && p->offset == q->offset && p->bytes == q->bytes);
      CHECK(!memcmp(p->begin, q->begin, sizeof(int64_t) * (size_t)x->ndim));
      CHECK(!memcmp(p->shape, q->shape, sizeof(int64_t) * (size_t)x->ndim));
      CHECK_STR(q->hash, p->hash);
    }
  }
}

static void test_round_trips(void) {
  for (int i = 0; i < 400; i++) {
    tsr_arena *arena = tsr_arena_new();
    tsr_diags *diags = tsr_diags_new(arena);
    tsr_manifest m, again;
    tsr_text text = {0}, second = {0};
    make_manifest(arena, &m);
    tsr_manifest_print(&m, &text);
    bool ok =
        tsr_manifest_parse(arena, "folder/manifest.json", text.data, text.length, &again, diags);
    CHECK_AT(ok, "manifest %d: %s%s", i, scratch_diags(diags), text.data);
    if (ok) {
      compare_about(&m, &again);
      compare_tensors(&m, &again);
      tsr_manifest_print(&again, &second);
      CHECK_STR(second.data, text.data);
    }
    tsr_text_free(&text);
    tsr_text_free(&second);
    tsr_arena_free(arena);
  }
}

/* ---- errors ---- */

static const char sound[] =
    "{\"xxh3\": \"00000000000000000000000000000000\",\n"
    " \"format\": \"tessera-checkpoint\",\n"
    " \"version\": 1,\n"
    " \"step\": 3,\n \"updates\": 3,\n \"samples\": 24,\n \"seed\": \"7\",\n \"loss\": 1.5,\n"
    " \"loss_scale\": {\"scale\": 1024, \"good_steps\": 2},\n"
    " \"has_state\": true,\n \"mesh\": null,\n \"isa\": \"x\",\n \"program\": \"0\",\n"
    " \"time\": 5,\n \"config\": \"config.yaml\",\n \"tokenizer\": null,\n"
    " \"recipe\": {\n  \"a\": \"1\"},\n"
    " \"files\": [\n"
    "  {\"name\": \"config.yaml\", \"bytes\": 9, \"header\": 9, \"xxh3\": "
    "\"0123456789abcdef0123456789abcdef\"},\n"
    "  {\"name\": \"rank-00000.safetensors\", \"bytes\": 124, \"header\": 100, \"xxh3\": "
    "\"0123456789abcdef0123456789abcde0\"}],\n"
    " \"tensors\": {\n"
    "  \"b\": {\"dtype\": \"f32\", \"shape\": [2, 3], \"pieces\": [\n"
    "   {\"file\": 1, \"offset\": 100, \"bytes\": 12, \"begin\": [0, 0], \"shape\": [1, 3], "
    "\"xxh3\": \"00000000000000000000000000000001\"},\n"
    "   {\"file\": 1, \"offset\": 112, \"bytes\": 12, \"begin\": [1, 0], \"shape\": [1, 3], "
    "\"xxh3\": \"00000000000000000000000000000002\"}]}}}\n";

typedef struct {
  const char *from, *to; /* the first place of `from` becomes `to` */
  const char *want;      /* behind "c/manifest.json: error: ", unless it begins with '=' */
} mistake;

static const mistake mistakes[] = {
#include "manifest_mistakes.inc"
};

static char *edited(tsr_arena *arena, const char *from, const char *to) {
  const char *at = strstr(sound, from);
  assert(at);
  char *text = tsr_arena_printf(arena, "%.*s%s%s", (int)(at - sound), sound, to, at + strlen(from));
  made_hash(text, strlen(text));
  return text;
}

static void test_mistakes(void) {
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    tsr_arena *arena = tsr_arena_new();
    tsr_diags *diags = tsr_diags_new(arena);
    tsr_manifest m;
    const mistake *e = &mistakes[i];
    char *text = edited(arena, e->from, e->to);
    bool ok = tsr_manifest_parse(arena, "c/manifest.json", text, strlen(text), &m, diags);
    const char *want = *e->want == '='
                           ? tsr_arena_printf(arena, "%s\n", e->want + 1)
                           : tsr_arena_printf(arena, "c/manifest.json: error: %s\n", e->want);
    const char *got = scratch_diags(diags);
    CHECK_AT(!ok, "'%s' for '%s' is taken", e->to, e->from);
    CHECK_AT(ok || !strcmp(got, want), "'%s' for '%s' gives\n%snot\n%s", e->to, e->from, got, want);
    tsr_arena_free(arena);
  }
}

static void test_sound(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_manifest m;
  char *text = edited(arena, "\"a\"", "\"a\"");
  CHECK(tsr_manifest_parse(arena, "c/manifest.json", text, strlen(text), &m, diags));
  CHECK_STR(scratch_diags(diags), "");
  CHECK_STR(m.folder, "c");
  CHECK(tsr_manifest_find(&m, "b") == m.tensors && !tsr_manifest_find(&m, "c"));
  CHECK(tsr_recipe_value(&m, "b") == NULL);
  for (size_t length = 0; length < 45; length++) {
    CHECK(!tsr_manifest_parse(arena, "m", text, length, &m, diags));
    CHECK_STR(
        scratch_diags(diags),
        "m: error: this is no manifest of a checkpoint: it does not begin with its hash\n");
  }
  tsr_arena_free(arena);
}

int main(void) {
  test_sound();
  test_round_trips();
  test_mistakes();
  return check_done("manifest");
}
