"""The function itself: a breadth-first search through a random graph."""

import random

import igraph

# With as many as this an instance takes some 300 MiB. More would be a mistake of the caller.
MAX_VERTICES = 1_000_000
MAX_EDGES = 5_000_000


def whole_number(arguments, name, default, minimum, maximum):
    """Return an argument, a whole number in these bounds."""
    number = arguments.get(name, default)
    if not isinstance(number, int) or isinstance(number, bool) or not minimum <= number <= maximum:
        raise ValueError(f"{name} has to be a whole number from {minimum} to {maximum}")
    return number


def make_graph(vertices, edges_per_vertex, seed):
    """Return a graph that grew by preferential attachment (Barabasi and Albert); the same arguments
    give the same graph."""
    igraph.set_random_number_generator(random.Random(seed))
    return igraph.Graph.Barabasi(n=vertices, m=edges_per_vertex)


def layer_sizes(graph, source):
    """Return how many vertices are 0, 1, 2, ... edges away from source."""
    _, starts, _ = graph.bfs(source)
    return [end - start for start, end in zip(starts, starts[1:])]


def main(arguments):
    """Search a graph of ``vertices`` (1,000 unless given), each of which came with
    ``edges_per_vertex`` (10, with many vertices fewer), from ``source`` (0); ``seed`` (1) picks the graph.

    Returns how many vertices are how far away, as a list and as a line of text.
    """
    vertices = whole_number(arguments, "vertices", 1000, 1, MAX_VERTICES)
    most = min(1000, MAX_EDGES // vertices)
    edges_per_vertex = whole_number(arguments, "edges_per_vertex", min(10, most), 1, most)
    source = whole_number(arguments, "source", 0, 0, vertices - 1)
    seed = whole_number(arguments, "seed", 1, 0, 2**63 - 1)
    graph = make_graph(vertices, edges_per_vertex, seed)
    sizes = layer_sizes(graph, source)
    layers = [f"{size} at distance {distance}" for distance, size in enumerate(sizes)]
    return {
        "summary": ", ".join(layers) + ".",
        "vertices_at_distance": sizes,
        "edges": graph.ecount(),
    }
