// SPDX-License-Identifier: Apache-2.0
/* Where the values of the configuration came from. */
#include "config/config_internal.h"
#include <string.h>

const tsr_yaml *tsr_loader_value(const tsr_loader *l, const char *dotted_key) {
  int row = tsr_field_find_dotted(dotted_key);
  return row < 0 ? NULL : l->origins->values[row];
}

const tsr_yaml *tsr_loader_key(const tsr_loader *l, const char *dotted_key) {
  int row = tsr_field_find_dotted(dotted_key);
  return row < 0 ? NULL : l->origins->keys[row];
}

void tsr_loader_take_origin(tsr_loader *l, const char *to, const char *from) {
  int row = tsr_field_find_dotted(to);
  if (l->origins->values[row] || !tsr_loader_value(l, from)) return;
  l->origins->keys[row] = tsr_loader_key(l, from);
  l->origins->values[row] = tsr_loader_value(l, from);
}

bool tsr_loader_contradict(tsr_loader *l, const char *a, const char *b) {
  const tsr_yaml *ka = tsr_loader_key(l, a), *kb = tsr_loader_key(l, b);
  tsr_diag_error(l->diags, kb->location, "'%s' contradicts '%s'", kb->text, ka->text);
  tsr_diag_hint(l->diags, "'%s' stands in %s:%d", ka->text, ka->location.file, ka->location.line);
  return false;
}

bool tsr_is_override(const tsr_yaml *key) {
  return key->location.file && !strncmp(key->location.file, "--", 2);
}

const char *tsr_loader_file_of(const tsr_loader *l, const tsr_yaml *node) {
  return tsr_is_override(node) ? l->config->file : node->location.file;
}
