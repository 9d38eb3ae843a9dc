"""The verbs of `import relook`, for any model and images, and their results."""
