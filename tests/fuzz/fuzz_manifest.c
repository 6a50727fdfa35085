// SPDX-License-Identifier: Apache-2.0
/* Any bytes behind a manifest's first line, whose hash is made right so that the checks behind it
 * are reached: what is taken covers tensors and files, and is printed and read again as it was. */
#include "tests/checkpoint/made.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char front[] = "{\"xxh3\": \"00000000000000000000000000000000\",\n";

static void check_manifest(const tsr_manifest *m) {
  int64_t bytes = 0;
  for (int i = 0; i < m->files_count; i++) bytes += m->files[i].header;
  for (int i = 0; i < m->tensors_count; i++) {
    const tsr_stored *t = &m->tensors[i];
    int64_t elements = 0;
    for (int k = 0; k < t->pieces_count; k++) {
      const tsr_stored_piece *p = &t->pieces[k];
      assert(p->file >= 0 && p->file < m->files_count);
      assert(p->offset >= m->files[p->file].header);
      assert(p->offset + p->bytes <= m->files[p->file].bytes);
      for (int d = 0; d < t->ndim; d++) assert(p->begin[d] + p->shape[d] <= t->shape[d]);
      elements += tsr_stored_elements(t->ndim, p->shape);
      bytes += p->bytes;
    }
    assert(elements == tsr_stored_elements(t->ndim, t->shape));
    assert(tsr_manifest_find(m, t->name) == t);
  }
  assert(bytes == tsr_manifest_bytes(m));
}

static void check_again(tsr_arena *arena, tsr_manifest *m, tsr_diags *diags) {
  tsr_text text = {0}, second = {0};
  tsr_manifest again;
  tsr_manifest_print(m, &text);
  bool ok = tsr_manifest_parse(arena, "again", text.data, text.length, &again, diags);
  assert(ok);
  tsr_manifest_print(&again, &second);
  assert(text.length == second.length && !memcmp(text.data, second.data, text.length));
  tsr_text_free(&text);
  tsr_text_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_manifest m;
  size_t length = sizeof front - 1 + size;
  char *text = malloc(length + 1);
  assert(text);
  memcpy(text, front, sizeof front - 1);
  if (size) memcpy(text + sizeof front - 1, data, size);
  text[length] = 0;
  made_hash(text, length);
  if (tsr_manifest_parse(arena, "m", text, length, &m, diags)) {
    check_manifest(&m);
    check_again(arena, &m, diags);
  } else {
    assert(tsr_diags_errors(diags) > 0);
  }
  free(text);
  tsr_arena_free(arena);
  return 0;
}
