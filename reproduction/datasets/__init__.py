"""Data that the paper's experiments use, with licence, source and public bounds; none of it ships with CAPE.

A loader takes a path, else looks in a folder of files fetched before, else fetches from the UCI repository.
"""

from reproduction.datasets.crime import load_crime
from reproduction.datasets.dataset import Dataset, MultiSite
from reproduction.datasets.fetch import Unavailable, cache_folder
from reproduction.datasets.heart import load_heart
from reproduction.datasets.made_up import synthetic_regression, two_gaussians
from reproduction.datasets.scaling import as_in_the_paper
from reproduction.datasets.twitter import load_twitter

__all__ = [
    "Dataset",
    "MultiSite",
    "Unavailable",
    "as_in_the_paper",
    "cache_folder",
    "load_crime",
    "load_heart",
    "load_twitter",
    "synthetic_regression",
    "two_gaussians",
]
