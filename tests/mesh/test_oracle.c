// SPDX-License-Identifier: Apache-2.0
/* Byte for byte what protoc encodes, on every text that protoc takes: the table of cases, the
 * shipped descriptors and the real ones. Where we refuse what it takes, the table names the
 * deviation. */
#include "mesh_test.h"
#include "textproto_cases.h"
#include "mesh/textproto.h"
#include "all_types.pb-c.h"
#include "mesh_graph_descriptor.pb-c.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static tsr_arena *arena;
static char scratch[] = "/tmp/tessera-oracle-XXXXXX";

typedef struct {
  const ProtobufCMessageDescriptor *descriptor;
  const char *folder, *proto;
} schema;

static const schema all_types = {
    &tsr__test__all_types__descriptor, TSR_SOURCE_ROOT "/tests/mesh", "all_types.proto"};
static const schema meshes = {
    &tt__tt_fabric__proto__mesh_graph_descriptor__descriptor, TSR_SOURCE_ROOT "/mesh_descriptors",
    "mesh_graph_descriptor.proto"};

static const char *scratch_file(const char *name) {
  return tsr_arena_printf(arena, "%s/%s", scratch, name);
}

/* Whether protoc takes the text, and the bytes that it gives. */
static bool
run_protoc(const schema *s, const char *text, size_t length, char **ret_bytes, size_t *ret_length) {
  FILE *in = fopen(scratch_file("in"), "wb");
  if (!in || fwrite(text, 1, length, in) != length || fclose(in)) perror("in"), exit(2);
  int status = system(tsr_arena_printf(
      arena, "protoc --proto_path='%s' --encode=%s %s < %s/in > %s/out 2> %s/err", s->folder,
      s->descriptor->name, s->proto, scratch, scratch, scratch));
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
    fprintf(stderr, "protoc cannot be run (package protobuf-compiler)\n");
    exit(1);
  }
  tsr_diags *diags = tsr_diags_new(arena);
  if (!tsr_file_read(
          arena, scratch_file("out"), 1 << 24, TSR_NOWHERE, ret_bytes, ret_length, diags))
    exit(2);
  return WEXITSTATUS(status) == 0;
}

/* Compares, and returns whether we took the text. */
static bool
compare(const schema *s, const char *name, const char *text, size_t length, const char *deviation) {
  ProtobufCMessage *message;
  tsr_diags *diags = tsr_diags_new(arena);
  bool ours = tsr_textproto_read(
      arena, name, text, length, s->descriptor, &message, tsr_places_new(arena), diags);
  char *bytes;
  size_t bytes_length;
  bool theirs = run_protoc(s, text, length, &bytes, &bytes_length);
  if (deviation)
    CHECK_AT(
        theirs && !ours, "%s: no deviation (%s): ours %d, protoc %d", name, deviation, ours,
        theirs);
  else CHECK_AT(ours == theirs, "%s: ours %d, protoc %d", name, ours, theirs);
  if (!ours || !theirs) return ours;
  size_t size = protobuf_c_message_get_packed_size(message);
  uint8_t *packed = malloc(size + 1);
  protobuf_c_message_pack(message, packed);
  CHECK_AT(
      size == bytes_length && !memcmp(packed, bytes, size), "%s: other bytes than protoc's", name);
  free(packed);
  return ours;
}

static void compare_folder(const char *folder, const char *ending) {
  struct dirent **entries;
  int count = scandir(folder, &entries, keep_all, alphasort);
  CHECK(count > 0);
  for (int i = 0; i < count; i++) {
    const char *name = entries[i]->d_name;
    size_t length = strlen(name);
    if (length > strlen(ending) && !strcmp(name + length - strlen(ending), ending)) {
      char *text;
      tsr_diags *diags = tsr_diags_new(arena);
      const char *path = tsr_arena_printf(arena, "%s/%s", folder, name);
      CHECK(tsr_file_read(arena, path, 1 << 24, TSR_NOWHERE, &text, &length, diags));
      compare(&meshes, name, text, length, NULL);
    }
    free(entries[i]);
  }
  free(entries);
}

static void compare_own(void) {
  for (int i = 0; i < TEXTPROTO_CASES; i++) {
    const textproto_case *c = &textproto_cases[i];
    bool ours = compare(&all_types, c->text, c->text, strlen(c->text), c->deviation);
    CHECK_AT(ours == !c->error, "not as the table says: %s", c->text);
  }
  compare_folder(TSR_SOURCE_ROOT "/mesh_descriptors", ".textproto");
}

/* usage: test_mesh_oracle [real]: with it Tenstorrent's descriptors, where they are */
int main(int count, char **words) {
  arena = tsr_arena_new();
  bool is_real = count > 1 && !strcmp(words[1], "real");
  const char *real = real_descriptors(arena);
  if (is_real && !real) {
    printf("mesh.oracle_real: skipped, there are no real descriptors\n");
    return 77;
  }
  if (!mkdtemp(scratch)) perror(scratch), exit(2);
  if (is_real) compare_folder(real, ".textproto");
  else compare_own();
  static const char *const files[] = {"in", "out", "err"};
  for (int i = 0; i < 3; i++) unlink(scratch_file(files[i]));
  rmdir(scratch);
  tsr_arena_free(arena);
  return check_done("mesh.oracle");
}
