"""Stack tree lstm."""

NETWORKS = {"StackTreeLSTM": "layer:StackTreeLSTM"}
ROWS = {
    "Tree-LSTM+stack": ("StackTreeLSTM", {"stack_size": 5, "normalize": False, "no_op": False}),
    "Tree-LSTM+stack+normalize": ("StackTreeLSTM", {"stack_size": 5, "normalize": True, "no_op": False}),
    "Tree-LSTM+stack+normalize+no-op": ("StackTreeLSTM", {"stack_size": 5, "normalize": True, "no_op": True}),
}
LAUNCHES = {"Tree-LSTM+stack": 47, "Tree-LSTM+stack+normalize": 47, "Tree-LSTM+stack+normalize+no-op": 47}
