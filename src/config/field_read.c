// SPDX-License-Identifier: Apache-2.0
/* One value against one row of the table. */
#include "config/config_internal.h"
#include <assert.h>
#include <string.h>

bool tsr_value_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  switch (f->type) {
  case TSR_FIELD_INT:
  case TSR_FIELD_SEED:
  case TSR_FIELD_FLOAT:
  case TSR_FIELD_BOOL:
  case TSR_FIELD_TEXT:
  case TSR_FIELD_PATH:
  case TSR_FIELD_CHOICE:
  case TSR_FIELD_BYTES:
    return tsr_scalar_read(l, f, key, node);
  case TSR_FIELD_SHAPE:
    return tsr_shape_read(l, f, key, node);
  case TSR_FIELD_IDS:
    return tsr_ids_read(l, f, key, node);
  case TSR_FIELD_AXES:
    return tsr_axes_read(l, f, key, node);
  case TSR_FIELD_STAGES:
    return tsr_stages_read(l, f, key, node);
  case TSR_FIELD_BLOCKS:
    return tsr_blocks_read(l, f, key, node);
  case TSR_FIELD_SOURCES:
    return tsr_sources_read(l, f, key, node);
  case TSR_FIELD_NAMES:
    return tsr_names_read(l, f, key, node);
  case TSR_FIELD_NUMBERS:
    return tsr_numbers_read(l, f, key, node);
  case TSR_FIELD_SECTION:
  case TSR_FIELD_FREE:
    return true; /* read by others */
  }
  return true;
}

void tsr_value_defaults(tsr_loader *l) {
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_field *f = &tsr_fields[i];
    if (!f->at || !f->standard) continue;
    tsr_yaml node = {.kind = TSR_YAML_SCALAR, .text = f->standard};
    node.text_length = strlen(f->standard);
    if (!strcmp(f->standard, "[]") || !strcmp(f->standard, "{}")) node.kind = TSR_YAML_NULL;
    bool ok = tsr_value_read(l, f, f->key, &node);
    assert(ok); /* else the table contradicts itself */
  }
}
