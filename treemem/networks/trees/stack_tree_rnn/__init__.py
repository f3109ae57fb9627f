"""Stack tree rnn."""

NETWORKS = {"StackTreeRNN": "layer:StackTreeRNN"}
ROWS = {
    "Tree-RNN+stack": ("StackTreeRNN", {"stack_size": 5, "no_op": False}),
    "Tree-RNN+stack+no-op": ("StackTreeRNN", {"stack_size": 5, "no_op": True}),
}
LAUNCHES = {"Tree-RNN+stack": 68, "Tree-RNN+stack+no-op": 68}
