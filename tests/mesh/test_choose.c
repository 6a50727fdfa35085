// SPDX-License-Identifier: Apache-2.0
/* Which descriptor is taken: option, configuration, environment, device count, generated; and what
 * is said when it is not there. Runs in a folder of its own with a made-up TT_METAL_HOME. */
#include "mesh_test.h"
#include "mesh/choose.h"
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define CUSTOM "tests/tt_metal/tt_fabric/custom_mesh_descriptors"
#define PLAIN "tt_metal/fabric/mesh_graph_descriptors"

static tsr_arena *arena;
static char scratch[] = "/tmp/tessera-choose-XXXXXX";

static void make_folders(const char *path) {
  char *part = tsr_arena_strdup(arena, path);
  for (char *at = part; (at = strchr(at, '/')); *at++ = '/') {
    *at = 0;
    mkdir(part, 0777);
  }
}

static void write_mesh(const char *path, const char *name, int a, int b) {
  make_folders(path);
  FILE *stream = fopen(path, "w");
  if (!stream) perror(path), exit(2);
  fprintf(
      stream,
      "mesh_descriptors { name: '%s' arch: CPU device_topology { dims: [%d, %d] }\n"
      "  host_topology { dims: [1, 1] } channels { count: 1 } }\n"
      "top_level_instance { mesh { mesh_descriptor: '%s' mesh_id: 0 } }\n",
      name, a, b, name);
  fclose(stream);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
  (void)info, (void)type, (void)walk;
  return remove(path);
}

/* The name of what is chosen, and the reason. */
static void expect(const tsr_mesh_request *request, const char *name, const char *why) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_mesh *mesh;
  const char *said_why;
  bool ok = tsr_mesh_choose(arena, request, &mesh, &said_why, diags);
  CHECK(ok);
  if (!ok) tsr_diags_print(diags, stderr);
  else CHECK_STR(mesh->shape.name, name);
  CHECK_STR(said_why, why);
}

static void expect_error(const tsr_mesh_request *request, const char *error) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_mesh *mesh;
  const char *why;
  CHECK(!tsr_mesh_choose(arena, request, &mesh, &why, diags));
  CHECK_INT(tsr_diags_exit_code(diags), 2);
  char *said = printed(diags);
  CHECK_STR(said, error);
  free(said);
}

static tsr_mesh_request request_of(int a, int b) {
  return (tsr_mesh_request){
      .dims = {a, b},
      .ndim = 2,
      .devices = (int64_t)a * b,
      .arch = TSR_ARCH_CPU,
      .shipped_folder = "shipped"};
}

static void test_order(void) {
  tsr_mesh_request w = request_of(4, 2);
  w.option = "here.textproto";
  w.config_value = "mesh.textproto";
  w.config_file = "configs/run.yaml";
  w.environment = "env.textproto";
  expect(&w, "HERE", "mesh: here.textproto (from --mesh)");
  w.option = NULL;
  expect(&w, "CONFIG", "mesh: configs/mesh.textproto (from device_config.mesh_graph_descriptor)");
  w.config_value = "";
  expect(&w, "ENV", "mesh: env.textproto (from TT_MESH_GRAPH_DESC_PATH)");
  w.environment = "";
  expect(&w, "CPU", "mesh: none given; generated 8 CPU ranks as 4 × 2");
  w.arch = TSR_ARCH_CUDA;
  expect(&w, "CUDA", "mesh: none given; generated 8 GPUs as 4 × 2");
  w = (tsr_mesh_request){.devices = 1, .arch = TSR_ARCH_CPU};
  expect(&w, "CPU", "mesh: none given; generated 1 CPU rank as 1");
}

static void test_search(void) {
  tsr_mesh_request w = request_of(4, 2);
  w.tt_metal_home = "metal";
  w.option = "only_shipped.textproto";
  expect(&w, "SHIPPED", "mesh: shipped/only_shipped.textproto (from --mesh)");
  w.option = "only_shipped";
  expect(&w, "SHIPPED", "mesh: shipped/only_shipped.textproto (from --mesh)");
  w.option = "custom.textproto";
  expect(&w, "CUSTOM", "mesh: metal/" CUSTOM "/custom.textproto (from --mesh)");
  w.option = "plain.textproto";
  expect(&w, "PLAIN", "mesh: metal/" PLAIN "/plain.textproto (from --mesh)");
  w.option = "$TT_METAL_HOME/" PLAIN "/plain.textproto";
  expect(&w, "PLAIN", "mesh: metal/" PLAIN "/plain.textproto (from --mesh)");
  w.option = NULL;
  w.environment = "${TT_METAL_HOME}/" CUSTOM "/custom.textproto";
  expect(&w, "CUSTOM", "mesh: metal/" CUSTOM "/custom.textproto (from TT_MESH_GRAPH_DESC_PATH)");
}

static void test_count(void) {
  tsr_mesh_request w = request_of(1, 8);
  expect(
      &w, "SHIPPED8",
      "mesh: shipped/t3k_1x8_mesh_graph_descriptor.textproto (for 8 devices, shipped)");
  w = request_of(8, 1); /* not its very shape */
  expect(&w, "CPU", "mesh: none given; generated 8 CPU ranks as 8 × 1");
  w.tt_metal_home = "metal";
  expect(
      &w, "METAL8",
      "mesh: metal/" CUSTOM "/t3k_1x8_mesh_graph_descriptor.textproto (for 8 devices, from "
      "TT_METAL_HOME)");
  w = request_of(4, 8);
  w.tt_metal_home = "metal";
  expect(
      &w, "METAL32",
      "mesh: metal/" CUSTOM "/galaxy_1x32_mesh_graph_descriptor.textproto (for 32 devices, from "
      "TT_METAL_HOME)");
  w = request_of(4, 4);
  w.tt_metal_home = "metal";
  expect(&w, "CPU", "mesh: none given; generated 16 CPU ranks as 4 × 4");
  w = request_of(4, 2);
  w.option = "auto";
  expect(
      &w, "SHIPPED8",
      "mesh: shipped/t3k_1x8_mesh_graph_descriptor.textproto (--mesh: auto, for 8 devices)");
}

static void test_errors(void) {
  tsr_mesh_request w = request_of(4, 2);
  w.config_value = "gone.textproto";
  w.config_file = "configs/run.yaml";
  w.config_place = (tsr_location){.file = "configs/run.yaml", .line = 3, .col = 5};
  expect_error(
      &w, "configs/run.yaml:3:5: error: mesh descriptor 'gone.textproto' not found (from "
          "device_config.mesh_graph_descriptor)\n"
          "      = looked for 'configs/gone.textproto', in the folders above it, in 'shipped'\n"
          "      = with TT_METAL_HOME set, tt-metal's own descriptors are searched too\n"
          "      = or name a file by --mesh, device_config.mesh_graph_descriptor or "
          "TT_MESH_GRAPH_DESC_PATH\n"
          "      = or leave it out: 8 and 32 devices have a descriptor, others need none\n");
  w.tt_metal_home = "metal";
  expect_error(
      &w, "configs/run.yaml:3:5: error: mesh descriptor 'gone.textproto' not found (from "
          "device_config.mesh_graph_descriptor)\n"
          "      = looked for 'configs/gone.textproto', in the folders above it, in 'shipped' and "
          "in the folders of descriptors of 'metal'\n"
          "      = or name a file by --mesh, device_config.mesh_graph_descriptor or "
          "TT_MESH_GRAPH_DESC_PATH\n"
          "      = or leave it out: 8 and 32 devices have a descriptor, others need none\n");
  w = request_of(4, 2);
  w.environment = "/no/such/mesh.textproto";
  expect_error(
      &w,
      "error: mesh descriptor '/no/such/mesh.textproto' not found (from TT_MESH_GRAPH_DESC_PATH)\n"
      "      = looked for '/no/such/mesh.textproto'\n"
      "      = or name a file by --mesh, device_config.mesh_graph_descriptor or "
      "TT_MESH_GRAPH_DESC_PATH\n"
      "      = or leave it out: 8 and 32 devices have a descriptor, others need none\n");
  w.environment = "$TT_METAL_HOME/a.textproto";
  expect_error(
      &w,
      "error: TT_METAL_HOME is not set, but the mesh descriptor '$TT_METAL_HOME/a.textproto' (from "
      "TT_MESH_GRAPH_DESC_PATH) needs it\n"
      "      = export TT_METAL_HOME=/path/to/tt-metal\n"
      "      = or name a file by --mesh, device_config.mesh_graph_descriptor or "
      "TT_MESH_GRAPH_DESC_PATH\n"
      "      = or leave it out: 8 and 32 devices have a descriptor, others need none\n");
  w = request_of(4, 4);
  w.option = "auto";
  expect_error(
      &w, "error: no mesh descriptor is chosen by itself for 16 devices (--mesh: auto)\n"
          "      = 8 devices become t3k_1x8_mesh_graph_descriptor.textproto\n"
          "      = 32 devices become galaxy_1x32_mesh_graph_descriptor.textproto\n");
  w = request_of(4, 8);
  w.option = "auto";
  w.shipped_folder = NULL;
  expect_error(
      &w, "error: TT_METAL_HOME is not set, but the mesh descriptor "
          "'galaxy_1x32_mesh_graph_descriptor.textproto' (from --mesh) needs it\n"
          "      = export TT_METAL_HOME=/path/to/tt-metal\n"
          "      = or name a file by --mesh, device_config.mesh_graph_descriptor or "
          "TT_MESH_GRAPH_DESC_PATH\n"
          "      = or leave it out: 8 and 32 devices have a descriptor, others need none\n");
  w = request_of(100000, 100000);
  expect_error(&w, "error: a mesh of 10,000,000,000 ranks; at most 16,777,216\n");
  w = request_of(4, 2);
  w.option = "broken.textproto";
  expect_error(
      &w, "broken.textproto:1:1: error: unknown field 'nothing' in 'MeshGraphDescriptor'\n"
          "    1 | nothing: 1\n"
          "      | ^~~~~~~\n"
          "      = valid: mesh_descriptors, graph_descriptors, top_level_instance, "
          "switch_descriptors, pinnings\n");
}

int main(void) {
  arena = tsr_arena_new();
  if (!mkdtemp(scratch) || chdir(scratch)) perror(scratch), exit(2);
  write_mesh("here.textproto", "HERE", 4, 2);
  write_mesh("configs/mesh.textproto", "CONFIG", 4, 2);
  write_mesh("env.textproto", "ENV", 4, 2);
  write_mesh("shipped/only_shipped.textproto", "SHIPPED", 4, 2);
  write_mesh("shipped/t3k_1x8_mesh_graph_descriptor.textproto", "SHIPPED8", 1, 8);
  write_mesh("metal/" CUSTOM "/custom.textproto", "CUSTOM", 4, 2);
  write_mesh("metal/" PLAIN "/plain.textproto", "PLAIN", 4, 2);
  write_mesh("metal/" CUSTOM "/t3k_1x8_mesh_graph_descriptor.textproto", "METAL8", 1, 8);
  write_mesh("metal/" CUSTOM "/galaxy_1x32_mesh_graph_descriptor.textproto", "METAL32", 1, 32);
  FILE *broken = fopen("broken.textproto", "w");
  if (!broken || fputs("nothing: 1\n", broken) < 0 || fclose(broken)) perror("broken"), exit(2);
  test_order();
  test_search();
  test_count();
  test_errors();
  CHECK_STR(tsr_mesh_auto_name(8), "t3k_1x8_mesh_graph_descriptor.textproto");
  CHECK(!tsr_mesh_auto_name(7));
  nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  tsr_arena_free(arena);
  return check_done("mesh.choose");
}
