"""TFLite files, read without TensorFlow: `hidet.tensorflow.from_tflite` and `hidet.compile("model.tflite")`.

flatbuffer  the file format below the schema: tables, vectors, texts, all checked against the file's end
schema      operators and fields, as the schema of TFLite numbers them
loader      a file as a `LiteModel`
importer    a `LiteModel` as a graph
mapping     what operators become
"""
