"""Recurrent cells over packed sequences in C++, alone or with a memory that they control."""
