"""
How abstract an image is: by layer, by n, by M/N
================================================

A membership-mapping autoencoder keeps less and less of a point the deeper the layer, the fewer the
code dimensions and the fewer the inducing points (document 001, Fig. 1.3 to 1.5).
"""

from sklearn.datasets import load_digits

from permea import ConditionallyDeep, MembershipAutoencoder
from permea.report.plots import plot_abstraction

X, y = load_digits(return_X_y=True)
eights = X[y == 8] / 16
train, point = eights[:150], eights[[160]]

# %%
# By layer: each reads the image of the one before, with one dimension less.
deep = ConditionallyDeep(MembershipAutoencoder(n_components=10), n_layers=10).fit(train)
layers = deep.images(point)[:, 0]
titles = [f"layer {k + 1}" for k in range(len(layers))]
figure = plot_abstraction(point[0], layers, shape=(8, 8), titles=titles)

# %%
# By the number n of code dimensions.
dimensions = [20, 15, 10, 7, 5, 3, 2, 1]
images = [
    MembershipAutoencoder(n_components=n).fit(train).reconstruct(point)[0] for n in dimensions
]
figure = plot_abstraction(point[0], images, shape=(8, 8), titles=[f"n = {n}" for n in dimensions])

# %%
# By the largest share M/N of inducing points.
shares = [0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01]
images = [MembershipAutoencoder(max_inducing=r).fit(train).reconstruct(point)[0] for r in shares]
figure = plot_abstraction(point[0], images, shape=(8, 8), titles=[f"M/N = {r:g}" for r in shares])
