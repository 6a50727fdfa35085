// SPDX-License-Identifier: Apache-2.0
/* Tables of numbers and MNIST's image files. */
#include "data/dataset.h"
#include "tests/check.h"
#include "tests/data/scratch.h"

static const tsr_location PLACE = {.file = "run.yaml", .line = 3, .col = 14};

static bool load(
    tsr_arena *arena, const char *text, const tsr_table_columns *columns, tsr_dataset *ret_dataset,
    tsr_diags *diags) {
  scratch_text("t.csv", text);
  return tsr_dataset_table(arena, "t.csv", columns, PLACE, ret_dataset, diags);
}

static void test_values(tsr_arena *arena, tsr_diags *diags) {
  tsr_dataset dataset;
  tsr_table_columns last = {0};
  CHECK(load(arena, "1,2,3\r\n\n 4 , \"-5\" ,6e-1\n", &last, &dataset, diags));
  CHECK(dataset.table.rows == 2 && dataset.table.features == 2 && dataset.table.targets == 1);
  float x[2], y[2];
  tsr_dataset_fill_features(&dataset, TSR_SPLIT_TRAIN, 1, x);
  tsr_dataset_fill_targets(&dataset, TSR_SPLIT_TRAIN, 1, y);
  CHECK(x[0] == 4 && x[1] == -5 && y[0] == 0.6f);
  tsr_dataset_split(&dataset, 0.5);
  CHECK_INT(tsr_dataset_samples(&dataset, TSR_SPLIT_TRAIN, 0), 1);
  tsr_dataset_fill_features(&dataset, TSR_SPLIT_VALIDATION, 0, x);
  CHECK(x[0] == 4);
  tsr_dataset_split(&dataset, 0.1);
  CHECK(!tsr_dataset_check(&dataset, TSR_SPLIT_VALIDATION, 0, PLACE, diags));
  CHECK_STR(
      scratch_diags(diags), "run.yaml:3:14: error: the validation part of 't.csv' has no rows\n");
}

static void test_columns(tsr_arena *arena, tsr_diags *diags) {
  static const char text[] = "size,\"price, net\",class,age\n10,20,1,30\n11,21,0,31\n";
  tsr_dataset dataset;
  tsr_table_columns columns = {
      .features = (const char *[]){"age", "size"},
      .features_count = 2,
      .targets = (const char *[]){"price, net", "2"},
      .targets_count = 2};
  float x[3], y[2];
  CHECK(load(arena, text, &columns, &dataset, diags));
  tsr_dataset_fill_features(&dataset, TSR_SPLIT_TRAIN, 0, x);
  tsr_dataset_fill_targets(&dataset, TSR_SPLIT_TRAIN, 0, y);
  CHECK(x[0] == 30 && x[1] == 10 && y[0] == 20 && y[1] == 1);

  tsr_table_columns label = {
      .targets = (const char *[]){"class"}, .targets_count = 1, .is_label = true};
  int32_t class;
  CHECK(load(arena, text, &label, &dataset, diags));
  CHECK(dataset.table.features == 3 && dataset.table.classes == 2 && dataset.table.targets == 0);
  tsr_dataset_fill_features(&dataset, TSR_SPLIT_TRAIN, 1, x);
  tsr_dataset_fill_label(&dataset, TSR_SPLIT_TRAIN, 0, &class);
  CHECK(class == 1 && x[0] == 11 && x[1] == 21 && x[2] == 31);
}

static void test_table_errors(tsr_arena *arena, tsr_diags *diags) {
  tsr_dataset dataset;
  tsr_table_columns last = {0}, label = {.is_label = true};
  tsr_table_columns misspelled = {.targets = (const char *[]){"prise"}, .targets_count = 1};
  tsr_table_columns number = {.targets = (const char *[]){"5"}, .targets_count = 1};
  tsr_table_columns both = {
      .targets = (const char *[]){"0", "1"}, .targets_count = 2, .is_label = true};
  CHECK(!load(arena, "a,b\n1,2\n3\n", &last, &dataset, diags));
  CHECK_STR(
      scratch_diags(diags), "t.csv:3:1: error: the row has 1 columns, not 2 as the first line\n"
                            "    3 | 3\n"
                            "      | ^\n");
  CHECK(!load(arena, "1,2\n3,x4\n", &last, &dataset, diags));
  CHECK(scratch_diags_start(diags, "t.csv:2:3: error: 'x4' is not a finite number\n"));
  CHECK(!load(arena, "1,2\n3,\n", &last, &dataset, diags));
  CHECK(scratch_diags_start(diags, "t.csv:2:3: error: '' is not a finite number\n"));
  CHECK(!load(arena, "1,2\n3,1e99\n", &last, &dataset, diags));
  CHECK(scratch_diags_start(diags, "t.csv:2:3: error: '1e99' is not a finite number\n"));
  CHECK(!load(arena, "1,2\n3,0.5\n", &label, &dataset, diags));
  CHECK(scratch_diags_start(diags, "t.csv:2:3: error: '0.5' is not a class number (0, 1, …)\n"));
  /* One word among numbers makes no header: the row is not lost without a word. */
  CHECK(!load(arena, "1,x\n3,4\n", &last, &dataset, diags));
  CHECK_STR(
      scratch_diags(diags),
      "t.csv:1:3: error: 'x' is not a finite number\n"
      "    1 | 1,x\n"
      "      |   ^\n"
      "      = the first line is a header only if none of its fields is a number\n");
  CHECK(!load(arena, "\n1,,2\n", &last, &dataset, diags));
  CHECK(scratch_diags_start(diags, "t.csv:2:3: error: '' is not a finite number\n"));
  CHECK(!load(arena, "1e99,2\n3,4\n", &last, &dataset, diags));
  CHECK(scratch_diags_start(diags, "t.csv:1:1: error: '1e99' is not a finite number\n"));
  CHECK(!load(arena, "1e99,1e99\n3,4\n", &last, &dataset, diags));
  CHECK(scratch_diags_start(diags, "t.csv:1:1: error: '1e99' is not a finite number\n"));
  CHECK(!load(arena, "id,2020,2021\n3,4,5\n", &last, &dataset, diags));
  CHECK(scratch_diags_start(diags, "t.csv:1:1: error: 'id' is not a finite number\n"));
  CHECK(!load(arena, "size,price\n1,2\n", &misspelled, &dataset, diags));
  CHECK(!load(arena, "1,2\n", &number, &dataset, diags));
  CHECK(!load(arena, "1,2\n", &both, &dataset, diags));
  CHECK(!load(arena, "1\n", &last, &dataset, diags));
  CHECK(!load(arena, "\n \n", &last, &dataset, diags));
  CHECK(!load(arena, "a,b\n", &last, &dataset, diags));
  CHECK_STR(
      scratch_diags(diags), "run.yaml:3:14: error: no column 'prise' in 't.csv'\n"
                            "      = did you mean 'price'?\n"
                            "run.yaml:3:14: error: no column '5' in 't.csv'\n"
                            "      = it has no header, and columns 0 to 1\n"
                            "run.yaml:3:14: error: 't.csv' has no column left for features\n"
                            "run.yaml:3:14: error: 't.csv' has no column left for features\n"
                            "t.csv: error: the table is empty\n"
                            "t.csv: error: the table has a header but no rows\n");
  both.targets = (const char *[]){"1", "2"};
  CHECK(!load(arena, "1,2,3\n", &both, &dataset, diags));
  CHECK_STR(
      scratch_diags(diags), "run.yaml:3:14: error: class labels need one target column, not 2\n");
}

static void test_endless(tsr_arena *arena, tsr_diags *diags) {
  tsr_dataset dataset;
  tsr_table_columns last = {0};
  CHECK(!tsr_dataset_table(arena, "/dev/zero", &last, PLACE, &dataset, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:3:14: error: cannot read '/dev/zero': it is a character device, not a file\n");
}

static const uint8_t IMAGES[] = {0, 0, 8, 3, 0, 0, 0,  2,   0, 0, 0,
                                 1, 0, 0, 0, 3, 0, 51, 255, 1, 2, 3};
static const uint8_t LABELS[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 0};

static void test_images(tsr_arena *arena, tsr_diags *diags) {
  scratch_write("images", IMAGES, sizeof IMAGES);
  scratch_write("labels", LABELS, sizeof LABELS);
  tsr_dataset dataset;
  CHECK(tsr_dataset_images(arena, "images", "labels", PLACE, &dataset, diags));
  CHECK(dataset.table.rows == 2 && dataset.table.features == 3 && dataset.table.classes == 8);
  float x[3];
  int32_t label;
  tsr_dataset_fill_features(&dataset, TSR_SPLIT_TRAIN, 0, x);
  tsr_dataset_fill_label(&dataset, TSR_SPLIT_TRAIN, 0, &label);
  CHECK(x[0] == 0 && x[1] == 0.2f && x[2] == 1 && label == 7);
}

static void test_image_errors(tsr_arena *arena, tsr_diags *diags) {
  tsr_dataset dataset;
  scratch_write("images", IMAGES, sizeof IMAGES);
  scratch_write("labels", LABELS, sizeof LABELS);
  CHECK(!tsr_dataset_images(arena, "labels", "images", PLACE, &dataset, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:3:14: error: 'labels' is not an IDX file of images: it must start with 0x00000803\n"
      "run.yaml:3:14: error: 'images' is not an IDX file of labels: it must start with "
      "0x00000801\n");
  scratch_write("short", IMAGES, sizeof IMAGES - 1);
  scratch_write(
      "three",
      "\0\0\x08\x01\0\0\0\x03"
      "abc",
      11);
  scratch_write("huge", "\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16);
  scratch_write("packed", "\x1f\x8b\x08\0", 4);
  scratch_write("none", "\0\0\x08\x03\0\0\0\0\0\0\0\x02\0\0\0\x02", 16);
  scratch_write("no-labels", "\0\0\x08\x01\0\0\0\0", 8);
  static const char *const pairs[][2] = {
      {"short", "labels"},
      {"images", "three"},
      {"huge", "labels"},
      {"packed", "labels"},
      {"none", "no-labels"}};
  for (int i = 0; i < 5; i++)
    CHECK(!tsr_dataset_images(arena, pairs[i][0], pairs[i][1], PLACE, &dataset, diags));
  CHECK_STR(
      scratch_diags(diags),
      "run.yaml:3:14: error: 'short' holds 5 bytes after its header, which speaks of 6\n"
      "run.yaml:3:14: error: 'images' holds 2 images, but 'three' holds 3 labels\n"
      "run.yaml:3:14: error: 'huge' holds 0 bytes after its header, which speaks of more than "
      "281474976710656\n"
      "run.yaml:3:14: error: 'packed' is not an IDX file of images: it must start with 0x00000803\n"
      "      = it is compressed: run gunzip on it first\n"
      "run.yaml:3:14: error: 'none' holds no images\n");
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  char folder[64];
  scratch_enter(folder);
  test_values(arena, diags);
  test_columns(arena, diags);
  test_table_errors(arena, diags);
  test_endless(arena, diags);
  test_images(arena, diags);
  test_image_errors(arena, diags);
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("table");
}
