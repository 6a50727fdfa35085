// SPDX-License-Identifier: Apache-2.0
/* The graph as TensorFlow's GraphDef, which TensorBoard's graph plugin draws. */
#include "tensorboard/writer_internal.h"

/* What a node has in the message. */
typedef struct {
  Tensorboard__NodeDef node;
  Tensorboard__NodeDef__AttrEntry entries[2], *entry_list[2];
  Tensorboard__AttrValue type, shapes;
  Tensorboard__AttrValue__ListValue list;
  Tensorboard__TensorShapeProto shape, *shape_list[1];
  Tensorboard__TensorShapeProto__Dim *dims, **dim_list;
} graph_node;

static void set_shape(graph_node *n, tsr_arena *scratch, const tsr_tensorboard_node *of) {
  n->dims = tsr_arena_array(scratch, Tensorboard__TensorShapeProto__Dim, of->ndim + 1);
  n->dim_list = tsr_arena_array(scratch, Tensorboard__TensorShapeProto__Dim *, of->ndim + 1);
  for (int d = 0; d < of->ndim; d++) {
    tensorboard__tensor_shape_proto__dim__init(n->dim_list[d] = &n->dims[d]);
    n->dims[d].size = of->shape[d];
  }
  tensorboard__tensor_shape_proto__init(n->shape_list[0] = &n->shape);
  n->shape.n_dim = (size_t)of->ndim;
  n->shape.dim = n->dim_list;
}

/* The attribute of the type, and that of the shapes of all results, by TensorFlow's names. */
static void set_attributes(graph_node *n, const tsr_tensorboard_node *of) {
  tensorboard__attr_value__init(&n->type);
  n->type.value_case = TENSORBOARD__ATTR_VALUE__VALUE_TYPE;
  n->type.type = (Tensorboard__DataType)of->dtype;
  tensorboard__attr_value__list_value__init(&n->list);
  n->list.n_shape = 1;
  n->list.shape = n->shape_list;
  tensorboard__attr_value__init(&n->shapes);
  n->shapes.value_case = TENSORBOARD__ATTR_VALUE__VALUE_LIST;
  n->shapes.list = &n->list;
  for (int i = 0; i < 2; i++) {
    tensorboard__node_def__attr_entry__init(n->entry_list[i] = &n->entries[i]);
    n->entries[i].key = i ? "_output_shapes" : "T";
    n->entries[i].value = i ? &n->shapes : &n->type;
  }
}

void tsr_tensorboard_add_graph(
    tsr_tensorboard *writer, tsr_arena *scratch, const tsr_tensorboard_node *nodes, int count) {
  enum { PRODUCER = 22 }; /* of TensorFlow's graph format; PyTorch's writer gives it too */
  graph_node *made = tsr_arena_array(scratch, graph_node, count + 1);
  Tensorboard__GraphDef graph = TENSORBOARD__GRAPH_DEF__INIT;
  Tensorboard__VersionDef version = TENSORBOARD__VERSION_DEF__INIT;
  Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
  graph.node = tsr_arena_array(scratch, Tensorboard__NodeDef *, count + 1);
  for (int i = 0; i < count; i++) {
    Tensorboard__NodeDef *node = graph.node[i] = &made[i].node;
    tensorboard__node_def__init(node);
    set_shape(&made[i], scratch, &nodes[i]);
    set_attributes(&made[i], &nodes[i]);
    node->name = (char *)nodes[i].name;
    node->op = (char *)nodes[i].op;
    node->n_input = (size_t)nodes[i].inputs_count;
    node->input = nodes[i].inputs;
    node->n_attr = 2;
    node->attr = made[i].entry_list;
  }
  graph.n_node = (size_t)count;
  version.producer = PRODUCER;
  graph.versions = &version;
  tsr_tensorboard_pack(&graph.base, &writer->part);
  event.what_case = TENSORBOARD__EVENT__WHAT_GRAPH_DEF;
  event.graph_def = (ProtobufCBinaryData){writer->part.length, (uint8_t *)writer->part.data};
  tsr_tensorboard_add_event(writer, &event, 0);
}
