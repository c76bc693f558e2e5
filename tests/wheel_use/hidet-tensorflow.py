"""Run from an environment that has only hidet-tensorflow and what it needs: without TensorFlow, its plug-in is found,
knows its models by their paths, and says what is missing; TFLite files it compiles."""

import base64
import pathlib
import zlib

import numpy

import hidet
from hidet.errors import ImportFailed
from hidet.plugins.host import load_registry

record = next(record for record in load_registry().plugins if record.owner.plugin == "tensorflow")
assert not record.problems, record.problems
pathlib.Path("model.keras").touch()
try:
    hidet.compile("model.keras")
except ImportFailed as error:
    assert "pip install tensorflow" in str(error), error
else:
    raise AssertionError("a model was imported without TensorFlow")
# relu(2 x - 1) of four numbers, made by TensorFlow's converter.
FILE = zlib.decompress(
    base64.b85decode(
        b"c-mc4J5SqC6h0w_L`jtLFbGu{QqiF-DKB+kC`5ruNIWVUG1g6GQ&~!klsE`FG4uy8FfsxYNF6Gs44o^45bDr@pMaP;wspUA@3HIp"
        b"CZF!P-"
        b"#zbhT_U3TtJPVP%2c9pGHH+s;Id>uCU8WbfIFa<BDw;8q>1n+h|uPhQ&wz~!>J&4bHF2@<Ft2O?}KGK+l_A1S9S()5(I%EGIRT~^"
        b"ZELZzT@*A&?o+wyMtXu<Po5@vA(su`DSHf-CA3&SC^{wDss{JWN|+b(`~t))$V$}+j6X3r`>UPJf*|+eFwgBUcfPM1o&e6R&sq8)"
        b"yzFAMlqOss@MU=g)vF>BkZf8dUKIKr6-"
        b"pYep>1>B*&S`%yean=$pi1pVO5WOhxPJcM#kF53$}69V{f{O6<j7&?WSe=diZAvRSU}c&OWV?278Gsnm*5hU}v#JkRhP_zZjzpRI"
        b"=Lk>qX1>>rDLUhGRceu?+8%u(l<Q8_Xd&YFFNy<lIas{NlY>Gx<s<QvqJ`p-uDPsQF6uYTZO=E-"
        b"whlKYqF9jgtBzkbQ_8TcXWuN!UO_3<(syVhtn=ci)6KPGI$IoaSjpH{aS>7FHY)6%a)@Eo(#egAx4a=lIH_K9v!bm2GBB^p!nBAJ"
        b"+88L+w)rr4(BO&aQ_-+$s;wDwS4d=6!ie<JRr_BUBjvmkZDGZ@zV@L#Dul??"
    )
)
pathlib.Path("model.tflite").write_bytes(FILE)
made = hidet.compile("model.tflite")(x=numpy.array([0, 1, 2, 3], numpy.float32))
assert made["y"].tolist() == [0, 1, 3, 5], made
print("hidet-tensorflow is found, compiles TFLite files, and asks for TensorFlow where it needs it")
