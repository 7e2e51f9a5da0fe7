"""Box plots of accuracies over people, as Figure 6 of document 003."""

import matplotlib.pyplot as plt


def box_plot(groups, path):
    """One panel per group: a box per way of answering, one point per person.

    Parameters
    ----------
    groups : dict of str to list of dict
        Title → results of people as `steps.transfer` gives them.
    path : str
        Where to save.
    """
    figure, axes = plt.subplots(
        1, len(groups), figsize=(3.4 * len(groups), 3.6), sharey=True, squeeze=False
    )
    for ax, (title, results) in zip(axes[0], groups.items(), strict=True):
        names = list(results[0])
        columns = [[result[name][1] for result in results] for name in names]
        ax.boxplot(columns, widths=0.5, showfliers=False)
        for place, column in enumerate(columns, 1):
            ax.plot([place] * len(column), column, "o", alpha=0.4, markersize=4)
        ax.axhline(0.5, color="gray", linestyle=":", linewidth=1)
        ax.set_xticks(range(1, len(names) + 1), names, rotation=20, fontsize=8)
        ax.set_title(f"{title}\n{len(results)} people", fontsize=9)
    axes[0][0].set_ylabel("balanced accuracy")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
