// SPDX-License-Identifier: Apache-2.0
/* The files that are made from the table of keys are up to date; with --write they are made. */
#include "base/file_read.h"
#include "base/new_file.h"
#include "base/text.h"
#include "config/fields.h"
#include "config/manual.h"
#include "config/schema.h"
#include "tests/check.h"
#include <stdlib.h>

static const char begin_mark[] = ".\\\" keys: begin\n", end_mark[] = ".\\\" keys: end\n";

static char *read_file(tsr_arena *arena, const char *path, tsr_diags *diags) {
  char *text = NULL;
  size_t length;
  if (!tsr_file_read(arena, path, 1 << 24, TSR_NOWHERE, &text, &length, diags))
    return tsr_arena_strdup(arena, "");
  return text;
}

/* The page with the part between its marks made anew. */
static void make_page(const char *page, tsr_text *text) {
  const char *begin = strstr(page, begin_mark), *end = strstr(page, end_mark);
  CHECK(begin && end);
  if (!begin || !end) return;
  tsr_text_add_bytes(text, page, (size_t)(begin - page) + strlen(begin_mark));
  tsr_config_manual(text);
  tsr_text_add(text, "%s", end);
}

/* Every key of the table stands in the schema, with its words. */
static void check_keys(const char *schema, const char *page) {
  for (int i = 0; i < tsr_fields_count; i++) {
    char entry[256];
    snprintf(entry, sizeof entry, "\"%s\": {", tsr_fields[i].key);
    CHECK_AT(strstr(schema, entry), "the schema has no key %s", tsr_fields[i].key);
    snprintf(entry, sizeof entry, "\"description\": \"%s\"", tsr_fields[i].doc);
    CHECK_AT(strstr(schema, entry), "the schema does not describe %s", tsr_fields[i].key);
    snprintf(entry, sizeof entry, ".It Cm %s\n", tsr_fields[i].key);
    CHECK_AT(strstr(page, entry), "the manual has no key %s", tsr_fields[i].key);
    if (!tsr_fields[i].same_as) continue;
    CHECK_AT(
        tsr_field_find_dotted(tsr_fields[i].same_as) >= 0, "%s is not a key",
        tsr_fields[i].same_as);
  }
}

int main(int argc, char **argv) {
  bool write = argc > 1 && !strcmp(argv[1], "--write");
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  const char *schema_path = TSR_SOURCE_ROOT "/configs/schema.json";
  const char *page_path = TSR_SOURCE_ROOT "/docs/tessera-train.1";
  tsr_text schema = {0}, page = {0};
  tsr_config_schema(&schema);
  make_page(read_file(arena, page_path, diags), &page);
  if (write) {
    tsr_file_forget(); /* the page is made of itself */
    CHECK(tsr_file_write(schema_path, schema.data, schema.length, diags));
    CHECK(page.data && tsr_file_write(page_path, page.data, page.length, diags));
  } else {
    CHECK(!strcmp(read_file(arena, schema_path, diags), schema.data));
    CHECK(page.data && !strcmp(read_file(arena, page_path, diags), page.data));
    if (check_failed) fprintf(stderr, "make them with: %s --write\n", argv[0]);
  }
  check_keys(schema.data, page.data ? page.data : "");
  tsr_diags_print(diags, stderr);
  tsr_text_free(&schema);
  tsr_text_free(&page);
  tsr_arena_free(arena);
  return check_done("config.generated");
}
