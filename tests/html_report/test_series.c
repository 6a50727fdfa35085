// SPDX-License-Identifier: Apache-2.0
/* Series of the page: exact points while there are few, buckets of many that hold each value, exact
 * ends, numbers that are missing. */
#include "html_report/series.h"
#include "base/json.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>

static cJSON *print(tsr_arena *arena, const tsr_series *s) {
  tsr_text text = {0};
  cJSON *json = NULL;
  tsr_series_print(s, 0, &text);
  CHECK(tsr_json_parse(arena, "series", text.data, text.length, &json, tsr_diags_new(arena)));
  tsr_text_free(&text);
  return json;
}

static double number_at(const cJSON *json, const char *key, int i) {
  const cJSON *item = cJSON_GetArrayItem(tsr_json_get(json, key), i);
  return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static void test_text(tsr_arena *arena) {
  tsr_series s = {.tag = "a\"b"};
  tsr_text text = {0};
  tsr_series_add(arena, &s, 1, 0.1);
  tsr_series_add(arena, &s, 2, NAN);
  tsr_series_add(arena, &s, 4, -INFINITY);
  tsr_series_add(arena, &s, 7, 1.0 / 3);
  tsr_series_print(&s, 0, &text);
  CHECK_STR(
      text.data,
      "{\"tag\":\"a\\\"b\",\"count\":4,\"x\":[1,2,4,7],\"y\":[0.1,null,null,0.333333],"
      "\"first\":[1,0.1],\"last\":[7,0.3333333333333333],\"missing_steps\":[2,4],\"missing\":2}");
  text.length = 0;
  tsr_series_cut(&s, 4);
  CHECK_INT(s.count, 2);
  tsr_series_cut(&s, 0);
  tsr_series_print(&s, 0, &text);
  CHECK_STR(
      text.data,
      "{\"tag\":\"a\\\"b\",\"count\":0,\"x\":[],\"y\":[],\"missing_steps\":[],\"missing\":0}");
  tsr_text_free(&text);
}

/* Each bucket has what the points between its neighbours have. */
static void test_buckets(tsr_arena *arena, int count) {
  tsr_series s = {.tag = "x"};
  for (int i = 0; i < count; i++)
    tsr_series_add(arena, &s, 3 + i, i == 777 ? NAN : sin(i * 0.01) * (i == 1234 ? 99 : 1));
  cJSON *json = print(arena, &s);
  int shown = cJSON_GetArraySize(tsr_json_get(json, "x")), at = 0;
  double low = INFINITY, high = -INFINITY;
  if (count <= 2 * TSR_SERIES_BUCKETS) CHECK_INT(shown, count);
  else CHECK_INT(shown, TSR_SERIES_BUCKETS + 2);
  for (int b = 0; b < shown && count > 2 * TSR_SERIES_BUCKETS; b++) {
    double step = number_at(json, "x", b),
           next = b + 1 < shown ? number_at(json, "x", b + 1) : INFINITY;
    CHECK(step < next && number_at(json, "lo", b) <= number_at(json, "y", b) + 1e-5);
    CHECK(number_at(json, "hi", b) >= number_at(json, "y", b) - 1e-5);
    for (; at < count && s.points[at].step <= (int64_t)step; at++) continue;
    low = fmin(low, number_at(json, "lo", b));
    high = fmax(high, number_at(json, "hi", b));
  }
  if (count > 2 * TSR_SERIES_BUCKETS) {
    CHECK_INT(at, count);
    CHECK_NEAR(low, 99 * sin(12.34), 1e-4);
    CHECK_NEAR(high, 1, 1e-3);
    CHECK_NEAR(number_at(json, "lo", 0), s.points[0].value, 1e-6);
  }
  CHECK(number_at(json, "first", 1) == s.points[0].value && number_at(json, "first", 0) == 3);
  CHECK(number_at(json, "last", 1) == s.points[count - 1].value);
  CHECK_INT((int)number_at(json, "missing_steps", 0), 780);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  test_text(arena);
  test_buckets(arena, 2000);
  test_buckets(arena, 2001);
  test_buckets(arena, 12345);
  tsr_arena_free(arena);
  return check_done("series");
}
