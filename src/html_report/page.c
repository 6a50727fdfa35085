// SPDX-License-Identifier: Apache-2.0
#include "html_report/page.h"
#include "base/json.h"
#include "html_report/page_template.h"
#include <assert.h>
#include <string.h>

/* In a script element "<" may end it, or begin a comment; in JSON it stands in strings alone. */
static void add_escaped(const tsr_text *json, tsr_text *page) {
  for (const char *at = json->data; *at;) {
    size_t plain = strcspn(at, "<");
    tsr_text_add_bytes(page, at, plain);
    at += plain;
    if (*at == '<') tsr_text_add(page, "\\u003c"), at++;
  }
}

void tsr_report_data_make(
    const tsr_page_run *runs, int count, const char *version, tsr_text *ret_json) {
  tsr_text_add(ret_json, "{\"format\":1,\"version\":");
  tsr_json_add_text(ret_json, version, strlen(version));
  tsr_text_add(ret_json, ",\"runs\":[");
  for (int i = 0; i < count; i++) {
    if (i) tsr_text_add(ret_json, ",\n");
    tsr_run_json(&runs[i], ret_json);
  }
  tsr_text_add(ret_json, "]}");
}

void tsr_report_page_make(const tsr_text *json, tsr_text *ret_page) {
  static const char mark[] = "@DATA@";
  const char *at = memmem(tsr_report_page, tsr_report_page_bytes, mark, strlen(mark));
  assert(at && !memcmp(tsr_report_page, TSR_REPORT_PAGE_BEGIN, strlen(TSR_REPORT_PAGE_BEGIN)));
  size_t before = (size_t)(at - tsr_report_page), behind = before + strlen(mark);
  tsr_text_add_bytes(ret_page, tsr_report_page, before);
  add_escaped(json, ret_page);
  tsr_text_add_bytes(ret_page, tsr_report_page + behind, tsr_report_page_bytes - behind);
}
