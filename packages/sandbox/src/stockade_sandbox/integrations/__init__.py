"""Stockade's sandbox in other frameworks, one module each. Nothing of ours imports them: they are found by entry point
or import path, and need their framework to be installed.
"""
