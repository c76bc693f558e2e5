"""An example plug-in for hidet: morphology of images, from the file that describes it to the kernel."""
