"""Run by scripts/test-function.sh inside the image, with its interpreter and packages."""

from collections import Counter, deque

import igraph

import action
from function_test import FunctionTest


def distances(vertices, edges, source):
    """Return how many vertices are how far from source, found with nothing but lists and a queue."""
    neighbours = [[] for _ in range(vertices)]
    for one, other in edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    distance = {source: 0}
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        for neighbour in neighbours[vertex]:
            if neighbour not in distance:
                distance[neighbour] = distance[vertex] + 1
                queue.append(neighbour)
    found = Counter(distance.values())
    return [found[step] for step in range(len(found))]


class BfsTest(FunctionTest):
    def test_graphs_with_known_distances(self):
        ring = igraph.Graph.Ring(10)
        self.assertEqual(action.layer_sizes(ring, 3), [1, 2, 2, 2, 2, 1])
        self.assertEqual(action.layer_sizes(igraph.Graph.Star(7), 0), [1, 6])
        self.assertEqual(action.layer_sizes(igraph.Graph.Star(7), 1), [1, 1, 5])
        self.assertEqual(action.layer_sizes(igraph.Graph.Hypercube(5), 9), [1, 5, 10, 10, 5, 1])
        # What cannot be reached is at no distance.
        self.assertEqual(action.layer_sizes(igraph.Graph(3, [(0, 1)]), 0), [1, 1])

    def test_distances_are_those_that_another_search_finds(self):
        for vertices, edges_per_vertex, source, seed in (
            (1000, 10, 0, 1),
            (1000, 1, 999, 2),
            (3000, 3, 17, 3),
            (20, 19, 5, 4),
            (1, 1, 0, 5),
        ):
            answer = self.run_with(
                vertices=vertices, edges_per_vertex=edges_per_vertex, source=source, seed=seed
            ).json
            edges = action.make_graph(vertices, edges_per_vertex, seed).get_edgelist()
            expected = distances(vertices, edges, source)
            self.assertEqual(answer["vertices_at_distance"], expected)
            self.assertEqual(answer["edges"], len(edges))
            self.assertEqual(sum(expected), vertices)

    def test_the_summary_has_every_distance(self):
        answer = self.run_with(vertices=5, edges_per_vertex=1, seed=1).json
        parts = [f"{n} at distance {d}" for d, n in enumerate(answer["vertices_at_distance"])]
        self.assertEqual(answer["summary"], ", ".join(parts) + ".")

    def test_the_seed_picks_the_graph(self):
        one, same, other = (self.run_with(seed=seed).json for seed in (7, 7, 8))
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_wrong_arguments_are_an_error_and_the_next_run_works(self):
        for value in (
            {"vertices": 0},
            {"vertices": "many"},
            {"vertices": True},
            {"vertices": 1.5},
            {"vertices": 1_000_001},
            {"vertices": 1_000_000, "edges_per_vertex": 6},
            {"edges_per_vertex": 0},
            {"edges_per_vertex": 1001},
            {"source": -1},
            {"source": 1000},
            {"seed": 2**63},
        ):
            answer = self.run_with(**value)
            self.assertEqual(answer.status_code, 502, value)
            self.assertIn("ValueError", answer.json["error"])
        self.assertEqual(self.run_with(vertices=3).status_code, 200)
