"""The verbs of `import relook`: any model, any images, and results that know what comes next."""
