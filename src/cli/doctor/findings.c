// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/findings.h"
#include <string.h>

/* Where the text of a finding begins. */
enum { LAYER_COLUMNS = 12, FINDING_COLUMNS = 12 };

void tsr_find(tsr_findings *f, const char *layer, tsr_finding finding, const char *format, ...) {
  static const char *const words[] = {"found", "missing", "mismatched"};
  va_list list;
  va_start(list, format);
  const char *text = tsr_arena_vprintf(f->arena, format, list);
  va_end(list);
  f->mismatched |= finding == TSR_MISMATCHED;
  tsr_text_add(&f->text, "%-*s%-*s", LAYER_COLUMNS, layer, FINDING_COLUMNS, words[finding]);
  for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    tsr_text_add(
        &f->text, "%*s%.*s\n", line == text ? 0 : LAYER_COLUMNS + FINDING_COLUMNS, "",
        (int)strcspn(line, "\n"), line);
}

void tsr_find_remedy(tsr_findings *f, const char *text) {
  tsr_text_add(&f->text, "%*s→ %s\n", LAYER_COLUMNS + FINDING_COLUMNS, "", text);
}
