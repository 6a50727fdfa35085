// SPDX-License-Identifier: Apache-2.0
/* What scripts/check_hf calls:
 *   hf_tool import FOLDER OUT
 *   hf_tool export CHECKPOINT OUT [f32|bf16|f16]
 *   hf_tool logits CHECKPOINT TOKEN...       the logits behind the last token, one a line */
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_import.h"
#include "tests/checkpoint/hf_session.h"
#include <stdlib.h>
#include <string.h>

static const char graphs[] = TSR_SOURCE_ROOT "/configs/graphs";

static bool
print_logits(tsr_arena *arena, const char *folder, char **words, int count, tsr_diags *diags) {
  int32_t *tokens = tsr_arena_array(arena, int32_t, count);
  int64_t vocab;
  for (int i = 0; i < count; i++) tokens[i] = atoi(words[i]);
  const float *logits = hf_session_logits(arena, folder, tokens, 1, count, &vocab, diags);
  for (int64_t i = 0; logits && i < vocab; i++)
    printf("%.9g\n", (double)logits[(count - 1) * vocab + i]);
  return logits != NULL;
}

int main(int count, char **words) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  bool ok = false;
  if (count == 4 && !strcmp(words[1], "import")) {
    tsr_hf_import_options options = {.graphs_folder = graphs, .version = "hf_tool"};
    ok = tsr_hf_import(arena, words[2], words[3], &options, diags);
  } else if ((count == 4 || count == 5) && !strcmp(words[1], "export")) {
    tsr_hf_export_options options = {
        .graphs_folder = graphs, .dtype = count == 5 ? words[4] : NULL};
    ok = tsr_hf_export(arena, words[2], words[3], &options, diags);
  } else if (count > 3 && !strcmp(words[1], "logits")) {
    ok = print_logits(arena, words[2], words + 3, count - 3, diags);
  } else {
    fprintf(stderr, "usage: hf_tool import|export|logits …\n");
  }
  tsr_diags_print(diags, stderr);
  tsr_arena_free(arena);
  return !ok;
}
