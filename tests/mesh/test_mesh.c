// SPDX-License-Identifier: Apache-2.0
/* What a descriptor becomes: shapes, instances, connections, what fits, what is printed, and notes.
 */
#include "mesh_test.h"
#include "mesh/mesh.h"

static tsr_arena *arena;

static tsr_mesh *parse(const char *text, tsr_diags *diags) {
  tsr_mesh *mesh;
  tsr_mesh_parse(arena, "t.textproto", text, strlen(text), &mesh, diags);
  return mesh;
}

static const tsr_mesh *parse_good(const char *text) {
  tsr_diags *diags = tsr_diags_new(arena);
  const tsr_mesh *mesh = parse(text, diags);
  if (!mesh) tsr_diags_print(diags, stderr), exit(1);
  return mesh;
}

static void check_print(const tsr_mesh *mesh, const char *expected) {
  tsr_text text = {0};
  tsr_mesh_print(mesh, &text);
  CHECK_STR(text.data, expected);
  tsr_text_free(&text);
}

#define MESH                                                                                       \
  "mesh_descriptors { name: 'M0' arch: WORMHOLE_B0 host_topology { dims: [2, 1] }\n"               \
  "  device_topology { dims: [4, 8] dim_types: [RING] } channels { count: 2 } }\n"

static void test_one(void) {
  const tsr_mesh *m = parse_good(MESH "top_level_instance { mesh { mesh_descriptor: 'M0' } }");
  CHECK_STR(m->file, "t.textproto");
  CHECK_STR(m->shape.name, "M0");
  CHECK_INT(m->shape.arch, TSR_ARCH_WORMHOLE_B0);
  CHECK_INT(m->shape.ndim, 2);
  CHECK(m->shape.dims[0] == 4 && m->shape.dims[1] == 8);
  CHECK_INT(m->shape.dim_types[0], TSR_MESH_RING);
  CHECK_INT(m->shape.dim_types[1], TSR_MESH_LINE); /* a short list is padded */
  CHECK(m->shape.host_dims[0] == 2 && m->shape.hosts == 2 && m->hosts == 2);
  CHECK_INT(m->shape.channels.count, 2);
  CHECK_INT(m->shape.channels.policy, TSR_MESH_RELAXED); /* the default of a mesh */
  CHECK_INT(m->shape.location.line, 2);
  CHECK(m->devices == 32 && m->meshes == 1 && m->is_uniform && !m->is_switch_only);
  check_print(
      m, "file        t.textproto\n"
         "mesh 'M0'\n"
         "  shape     4 × 8  (ring × line)\n"
         "  arch      WORMHOLE_B0\n"
         "  devices   32\n"
         "  hosts     2 × 1, 16 devices each\n"
         "  links     2 per pair of neighbours, RELAXED\n");
}

static void test_graph(void) {
  const tsr_mesh *m = parse_good(
      MESH
      "switch_descriptors { name: 'S0' arch: WORMHOLE_B0 device_topology { dims: [1, 2] }\n"
      "  channels { count: 1 } }\n"
      "graph_descriptors { name: 'POD' type: 'POD'\n"
      "  instances { mesh { mesh_descriptor: 'M0' mesh_id: 3 } }\n"
      "  instances { mesh { mesh_descriptor: 'M0' mesh_id: 1 } }\n"
      "  instances { switch { switch_descriptor: 'S0' switch_id: 2 } }\n"
      "  graph_topology { layout_type: RING channels { count: 4 policy: RELAXED } }\n"
      "  connections { nodes { mesh { mesh_descriptor: 'M0' mesh_id: 1 device_id: 31 } }\n"
      "    nodes { switch { switch_descriptor: 'S0' switch_id: 2 device_id: 0 } }\n"
      "    channels { count: 1 } assign_z_direction: true } }\n"
      "graph_descriptors { name: 'ALL' type: 'CLUSTER'\n"
      "  instances { graph { graph_descriptor: 'POD' graph_id: 0 } }\n"
      "  instances { graph { graph_descriptor: 'POD' graph_id: 1 } }\n"
      "  connections { nodes { graph { graph_descriptor: 'POD' graph_id: 0\n"
      "      sub_ref { mesh { mesh_descriptor: 'M0' mesh_id: 3 device_id: 7 } } } }\n"
      "    nodes { graph { graph_descriptor: 'POD' graph_id: 1\n"
      "      sub_ref { mesh { mesh_descriptor: 'M0' mesh_id: 1 } } } } channels { count: 2 } } }\n"
      "top_level_instance { graph { graph_descriptor: 'ALL' graph_id: 9 } }");
  CHECK(m->meshes == 4 && m->devices == 128 && m->hosts == 8 && m->is_uniform);
  CHECK_INT(m->instances_count, 9);
  CHECK_INT(m->connections_count, 9);
  CHECK(m->instances[5].parent == 0 && m->instances[6].parent == 5 && m->instances[6].depth == 2);
  const tsr_mesh_connection *between = &m->connections[8];
  CHECK(between->from == 2 && between->from_device == 7 && between->to == 7);
  CHECK_INT(between->to_device, -1);
  CHECK_INT(between->channels.policy, TSR_MESH_STRICT); /* the default of a connection */
  CHECK(m->connections[3].assign_z_direction);
  check_print(
      m, "file        t.textproto\n"
         "mesh 'M0'\n"
         "  shape     4 × 8  (ring × line)\n"
         "  arch      WORMHOLE_B0\n"
         "  devices   32\n"
         "  hosts     2 × 1, 16 devices each\n"
         "  links     2 per pair of neighbours, RELAXED\n"
         "switch 'S0'\n"
         "  shape     1 × 2  (line × line)\n"
         "  arch      WORMHOLE_B0\n"
         "  devices   2\n"
         "  hosts     1 × 1\n"
         "  links     1 per pair of neighbours, STRICT\n"
         "instances\n"
         "  graph 9 'ALL', type CLUSTER\n"
         "    graph 0 'POD', type POD\n"
         "      mesh 3 'M0', 4 × 8\n"
         "      mesh 1 'M0', 4 × 8\n"
         "      switch 2 'S0', 1 × 2\n"
         "    graph 1 'POD', type POD\n"
         "      mesh 3 'M0', 4 × 8\n"
         "      mesh 1 'M0', 4 × 8\n"
         "      switch 2 'S0', 1 × 2\n"
         "connections\n"
         "  graph 0 mesh 1 - graph 0 switch 2, 4 links, RELAXED\n"
         "  graph 0 switch 2 - graph 0 mesh 3, 4 links, RELAXED\n"
         "  graph 0 mesh 3 - graph 0 mesh 1, 4 links, RELAXED\n"
         "  graph 0 mesh 1 device 31 - graph 0 switch 2 device 0, 1 link, STRICT, z direction\n"
         "  graph 1 mesh 1 - graph 1 switch 2, 4 links, RELAXED\n"
         "  graph 1 switch 2 - graph 1 mesh 3, 4 links, RELAXED\n"
         "  graph 1 mesh 3 - graph 1 mesh 1, 4 links, RELAXED\n"
         "  graph 1 mesh 1 device 31 - graph 1 switch 2 device 0, 1 link, STRICT, z direction\n"
         "  graph 0 mesh 3 device 7 - graph 1 mesh 1, 2 links, STRICT\n"
         "altogether  4 meshes, 128 devices, 8 hosts\n");
}

static int topology_links(int meshes, const char *layout) {
  tsr_text text = {0};
  tsr_text_add(&text, MESH "graph_descriptors { name: 'G' type: 'FABRIC'\n");
  for (int i = 0; i < meshes; i++)
    tsr_text_add(&text, "instances { mesh { mesh_descriptor: 'M0' mesh_id: %d } }\n", i);
  tsr_text_add(&text, "graph_topology { layout_type: %s channels { count: 1 } } }\n", layout);
  tsr_text_add(&text, "top_level_instance { graph { graph_descriptor: 'G' } }");
  int links = parse_good(text.data)->connections_count;
  tsr_text_free(&text);
  return links;
}

static int64_t express_on(const char *types, const char *links) {
  return parse_good(
             tsr_arena_printf(
                 arena,
                 "mesh_descriptors { name: 'M0' arch: BLACKHOLE host_topology { dims: [1, 1] }\n"
                 "  device_topology { dims: [8, 4] %s } channels { count: 2 } %s }\n"
                 "top_level_instance { mesh { mesh_descriptor: 'M0' } }",
                 types, links))
      ->shape.express_links;
}

static int64_t express(const char *links) { return express_on("", links); }

static void test_links(void) {
  CHECK_INT(topology_links(1, "RING"), 0);
  CHECK_INT(topology_links(2, "RING"), 1);
  CHECK_INT(topology_links(5, "RING"), 5);
  CHECK_INT(topology_links(1, "ALL_TO_ALL"), 0);
  CHECK_INT(topology_links(5, "ALL_TO_ALL"), 10);
  CHECK_INT(express("express_connections { src: 0 dst: 31 }"), 1);
  CHECK_INT(express("express_links { dim_idx: 0 pattern { start: 2 step: 4 } wrap: LINE }"), 4);
  CHECK_INT(express("express_links { dim_idx: 0 pattern { start: 2 step: 4 } wrap: RING }"), 8);
  CHECK_INT(express("express_links { dim_idx: 1 pattern { start: 0 step: 2 } }"), 16);
  static const char pattern[] = "express_links { dim_idx: 0 pattern { start: 2 step: 4 } }";
  static const char line[] = "express_links { dim_idx: 0 pattern { start: 2 step: 4 } wrap: LINE }";
  CHECK_INT(express_on("dim_types: [LINE, RING]", pattern), 4);
  CHECK_INT(express_on("dim_types: [RING, LINE]", pattern), 8);
  CHECK_INT(express_on("dim_types: [RING, LINE]", line), 4);
}

static void test_made_up(void) {
  int d1x8[] = {1, 8}, d2x2x2[] = {2, 2, 2};
  const tsr_mesh *line = tsr_mesh_make_cpu(arena, d1x8, 2);
  CHECK_STR(tsr_mesh_dims_text(arena, d2x2x2, 3), "2 × 2 × 2");
  CHECK(!line->file && line->devices == 8 && line->instances[0].shape == &line->shape);
  check_print(
      tsr_mesh_make_cpu(arena, d2x2x2, 3), "file        none: generated\n"
                                           "mesh 'CPU'\n"
                                           "  shape     2 × 2 × 2  (ring × ring × ring)\n"
                                           "  arch      CPU\n"
                                           "  devices   8\n"
                                           "  hosts     1 × 1 × 1\n"
                                           "  links     1 per pair of neighbours, RELAXED\n");
}

static void check_notes(const char *text, const char *notes) {
  tsr_diags *diags = tsr_diags_new(arena);
  CHECK(parse(text, diags));
  CHECK_INT(tsr_diags_errors(diags), 0);
  char *said = printed(diags);
  CHECK_AT(strstr(said, notes) != NULL, "no '%s' in\n%s", notes, said);
  free(said);
}

static void test_notes(void) {
#define TOP "\ntop_level_instance { mesh { mesh_descriptor: 'M' mesh_id: 0 } }"
#define DIMS(arch, dims, hosts)                                                                    \
  "mesh_descriptors { name: 'M' arch: " arch " channels { count: 1 }\n"                            \
  "host_topology { dims: " hosts " } device_topology { dims: " dims " } }" TOP
  check_notes(
      DIMS("BLACKHOLE", "[2, 2, 2]", "[1, 1, 1]"),
      "t.textproto:2:60: note: the fabric needs exactly 2 device dims and 2 host dims; mesh "
      "descriptor "
      "'M' has 3\n");
  check_notes(
      DIMS("WORMHOLE_B0", "[3, 5]", "[1, 1]"), "note: the fabric opens no Wormhole mesh with two "
                                               "odd dims unless both are 1; 'M' is 3 × 5\n");
  tsr_diags *diags = tsr_diags_new(arena);
  CHECK(parse(DIMS("CPU", "[2, 2, 2, 2]", "[1, 1, 1, 1]"), diags)); /* ours: nothing to say */
  char *said = printed(diags);
  CHECK_STR(said, "");
  free(said);
#define NODE(id) "nodes { mesh { mesh_descriptor: 'M0' mesh_id: " id " } }"
#define CONNECT(a, b, policy)                                                                      \
  "connections { " NODE(a) NODE(b) " channels { count: 1" policy " } }\n"
#define GRAPH(type, connections)                                                                   \
  MESH "graph_descriptors { name: 'G' type: '" type "'\n"                                          \
       "instances { mesh { mesh_descriptor: 'M0' mesh_id: 0 } }\n"                                 \
       "instances { mesh { mesh_descriptor: 'M0' mesh_id: 1 } }\n" connections                     \
       "}\ntop_level_instance { graph { graph_descriptor: 'G' } }"
  check_notes(
      GRAPH("fabric", ""),
      "note: the fabric needs graphs of type 'FABRIC'; 'G' is of type 'fabric'\n");
  check_notes(
      GRAPH("FABRIC", CONNECT("0", "1", "") CONNECT("0", "1", " policy: RELAXED")),
      "note: the fabric allows no STRICT and RELAXED connections in one graph, as in 'G'\n");
  check_notes(
      GRAPH("FABRIC", CONNECT("0", "1", "") CONNECT("0", "1 device_id: 0", "")),
      "note: the fabric allows no connections with and without device_id in one graph, as in "
      "'G'\n");
  check_notes(
      GRAPH("FABRIC", "connections {" NODE("0") NODE("1") NODE("0") "channels { count: 1 } }\n"),
      "note: the fabric needs exactly 2 nodes in a connection; here are 3\n");
  check_notes(
      MESH "top_level_instance { mesh { mesh_descriptor: 'M0' mesh_id: 4 } }",
      "note: the fabric expects the mesh and switch ids 0 to 0, each once\n");
}

/* Graphs of graphs multiply; the reader must stop. */
static void test_explosion(void) {
  tsr_text text = {0};
  tsr_text_add(&text, MESH);
  for (int i = 0; i < 40; i++) {
    tsr_text_add(&text, "graph_descriptors { name: 'G%d' type: 'T%d'\n", i, i);
    for (int k = 0; k < 2; k++)
      if (i < 39)
        tsr_text_add(
            &text, "instances { graph { graph_descriptor: 'G%d' graph_id: %d } }\n", i + 1, k);
      else tsr_text_add(&text, "instances { mesh { mesh_descriptor: 'M0' mesh_id: %d } }\n", k);
    tsr_text_add(&text, "}\n");
  }
  tsr_text_add(&text, "top_level_instance { graph { graph_descriptor: 'G0' } }");
  tsr_diags *diags = tsr_diags_new(arena);
  CHECK(!parse(text.data, diags));
  char *said = printed(diags);
  CHECK(strstr(said, "error: more than 1048576 instances\n") != NULL);
  free(said);
  tsr_text_free(&text);
}

static void test_files(void) {
  static const struct {
    const char *path, *error;
  } cases[] = {
      {"no/such/file.textproto",
       "run.yaml: error: cannot read 'no/such/file.textproto': No such file or directory\n"},
      {"mesh.yaml",
       "run.yaml: error: a mesh descriptor's name ends in .textproto, not 'mesh.yaml'\n"
       "      = the YAML form of mesh graph descriptors (1.0) is gone; convert it to a "
       "textproto\n"},
      {".textproto",
       "run.yaml: error: a mesh descriptor's name ends in .textproto, not '.textproto'\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_diags *diags = tsr_diags_new(arena);
    tsr_mesh *mesh;
    CHECK(!tsr_mesh_read(arena, cases[i].path, (tsr_location){.file = "run.yaml"}, &mesh, diags));
    CHECK_INT(tsr_diags_exit_code(diags), 2);
    char *said = printed(diags);
    CHECK_STR(said, cases[i].error);
    free(said);
  }
}

static void test_shipped(void) {
  static const struct {
    const char *name;
    int ndim, dims[TSR_MESH_DIMS_MAX];
    tsr_mesh_arch arch;
  } shipped[] = {
      {"cpu_1", 1, {1}, TSR_ARCH_CPU},
      {"cpu_2x2", 2, {2, 2}, TSR_ARCH_CPU},
      {"cpu_4x2", 2, {4, 2}, TSR_ARCH_CPU},
      {"cpu_2x2x2", 3, {2, 2, 2}, TSR_ARCH_CPU},
      {"h200x8", 2, {1, 8}, TSR_ARCH_CUDA},
      {"h200x8_4_hosts", 2, {4, 8}, TSR_ARCH_CUDA},
      {"n150", 2, {1, 1}, TSR_ARCH_WORMHOLE_B0},
      {"n300", 2, {1, 2}, TSR_ARCH_WORMHOLE_B0},
      {"t3k_1x8_mesh_graph_descriptor", 2, {1, 8}, TSR_ARCH_WORMHOLE_B0},
      {"t3k_2x4", 2, {2, 4}, TSR_ARCH_WORMHOLE_B0},
      {"galaxy_1x32_mesh_graph_descriptor", 2, {1, 32}, TSR_ARCH_WORMHOLE_B0},
      {"galaxy_4x8", 2, {4, 8}, TSR_ARCH_WORMHOLE_B0},
      {"galaxy_8x4", 2, {8, 4}, TSR_ARCH_WORMHOLE_B0},
      {"galaxy_8x4_ring_of_4", 2, {8, 4}, TSR_ARCH_WORMHOLE_B0}};
  int count = sizeof shipped / sizeof *shipped, files = 0;
  for (int i = 0; i < count; i++) {
    tsr_diags *diags = tsr_diags_new(arena);
    tsr_mesh *mesh;
    const char *path =
        tsr_arena_printf(arena, TSR_SOURCE_ROOT "/mesh_descriptors/%s.textproto", shipped[i].name);
    CHECK(tsr_mesh_read(arena, path, TSR_NOWHERE, &mesh, diags));
    char *said = printed(diags);
    CHECK_STR(said, ""); /* neither errors nor notes */
    free(said);
    if (!mesh) continue;
    CHECK_INT(mesh->shape.arch, shipped[i].arch);
    CHECK_INT(mesh->shape.ndim, shipped[i].ndim);
    CHECK_AT(
        !memcmp(mesh->shape.dims, shipped[i].dims, sizeof shipped[i].dims), "%s: other dims",
        shipped[i].name);
  }
  struct dirent **entries;
  int all = scandir(TSR_SOURCE_ROOT "/mesh_descriptors", &entries, keep_all, NULL);
  for (int i = 0; i < all; i++) {
    files += strstr(entries[i]->d_name, ".textproto") != NULL;
    free(entries[i]);
  }
  free(entries);
  CHECK_INT(files, count); /* each is in the table */
}

int main(void) {
  arena = tsr_arena_new();
  test_one();
  test_graph();
  test_links();
  test_made_up();
  test_notes();
  test_explosion();
  test_files();
  test_shipped();
  tsr_arena_free(arena);
  return check_done("mesh.mesh");
}
